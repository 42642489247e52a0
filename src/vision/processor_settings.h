// Settings that the processors of all families read, and the last steps of processing an image.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "vision/pixel_values.h"
#include "vision/processor.h"
#include "vision/resize.h"

namespace sluice {

// The settings of an image processor: its file, overridden by --mm-processor-kwargs.
class ProcessorSettings {
 public:
  // Reads the settings. `known`: this family's settings, in addition to those common to all.
  // kInvalidArgument for overrides of unknown settings.
  static Result<ProcessorSettings> Read(const ProcessorInputs& inputs,
                                        const std::vector<std::string_view>& known);

  JsonFields fields() const { return JsonFields(merged_, "preprocessor_config.json."); }
  const json::Value& merged() const { return merged_; }

  // Returns an integer >= 1, or `otherwise` if absent.
  Result<int> Size(std::string_view name, int otherwise) const;
  // Returns whether --mm-processor-kwargs contains this setting.
  bool IsOverridden(std::string_view name) const;
  // Returns `image_processor_type` without the suffixes of implementations, "Fast" and "Pil".
  Result<std::string> Kind(std::string_view otherwise) const;
  // Returns the file's `resample`; kUnsupported for a filter that is not in resize.h.
  Result<ResizeFilter> Filter(ResizeFilter otherwise) const;
  // Returns do_rescale, rescale_factor, do_normalize, image_mean and image_std. `otherwise`: the
  // family's defaults.
  Result<PixelTable::Settings> Pixels(PixelTable::Settings otherwise) const;

 private:
  json::Value merged_, overrides_;
};

// A token of the vocabulary.
struct MarkerToken {
  int32_t id = 0;
  std::string text;
};

// Returns the token whose id config.json gives under one of two names. kInvalidData if both are
// absent or the vocabulary has no such token.
Result<MarkerToken> TokenOfConfig(const ProcessorInputs& inputs, std::string_view name,
                                  std::string_view other_name);
// Returns the token with this text; kInvalidData if the vocabulary has none.
Result<MarkerToken> TokenOfText(const ProcessorInputs& inputs, std::string_view text);

// Appends a token `count` times.
void AppendTokens(ProcessedImage& image, int32_t token, int64_t count, bool is_embedding);
// Counts the embeddings and computes the hash: the last step of every processor.
void FinishImage(ProcessedImage& image);
// Returns the text of an image's tokens. `markers`: all tokens that occur, with their texts.
std::string TextOfTokens(const ProcessedImage& image, const std::vector<MarkerToken>& markers);

// Defaults of image_mean and image_std in several families.
inline constexpr std::array<double, 3> kClipMean{0.48145466, 0.4578275, 0.40821073};
inline constexpr std::array<double, 3> kClipDeviation{0.26862954, 0.26130258, 0.27577711};

// Maximum number of pixels, far below integer overflow.
inline constexpr int64_t kMaxProcessedPixels = int64_t{1} << 28;

Result<std::unique_ptr<ImageProcessor>> CreateLlama4Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateGemma3Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateGemma4Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateIdefics3Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateAyaProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateInternVlProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateKimiProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateLfm2VlProcessor(const ProcessorInputs& inputs);
// Creates the processor for the model's tower: for CLIP and SigLIP one that makes squares,
// otherwise Pixtral's.
Result<std::unique_ptr<ImageProcessor>> CreateLlavaProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateLlavaNextProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreatePixtralProcessor(const ProcessorInputs& inputs);
// How Qwen2-VL and related families determine the image's size and the layout of patches.
enum class SmartResizeRule { kQwen, kGlm, kPaddle };
Result<std::unique_ptr<ImageProcessor>> CreateQwenProcessor(const ProcessorInputs& inputs,
                                                            SmartResizeRule rule);

}  // namespace sluice
