// What the processors of all families read from their files, and how they finish an image.
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

// The settings of one image processor: its file with --mm-processor-kwargs laid over it.
class ProcessorSettings {
 public:
  // `known`: the settings of this family besides those that all have. Overrides of other names are
  // kInvalidArgument.
  static Result<ProcessorSettings> Read(const ProcessorInputs& inputs,
                                        const std::vector<std::string_view>& known);

  JsonFields fields() const { return JsonFields(merged_, "preprocessor_config.json."); }
  const json::Value& merged() const { return merged_; }

  // An integer >= 1; `otherwise` if it is not given.
  Result<int> Size(std::string_view name, int otherwise) const;
  // Whether --mm-processor-kwargs has a setting.
  bool IsOverridden(std::string_view name) const;
  // `image_processor_type` without what tells implementations of one class apart.
  Result<std::string> Kind(std::string_view otherwise) const;
  // `resample` of the file; kUnsupported for a filter that is not in resize.h.
  Result<ResizeFilter> Filter(ResizeFilter otherwise) const;
  // do_rescale, rescale_factor, do_normalize, image_mean, image_std over what the family has.
  Result<PixelTable::Settings> Pixels(PixelTable::Settings otherwise) const;

 private:
  json::Value merged_, overrides_;
};

// A token of the vocabulary.
struct MarkerToken {
  int32_t id = 0;
  std::string text;
};

// The token whose id config.json gives under one of two names. kInvalidData if neither is there or
// the vocabulary has no such token.
Result<MarkerToken> TokenOfConfig(const ProcessorInputs& inputs, std::string_view name,
                                  std::string_view other_name);
// The token with this text; kInvalidData if the vocabulary has none.
Result<MarkerToken> TokenOfText(const ProcessorInputs& inputs, std::string_view text);

// Appends `count` times a token.
void AppendTokens(ProcessedImage& image, int32_t token, int64_t count, bool is_embedding);
// Counts the embeddings and computes the hash: the last step of every processor.
void FinishImage(ProcessedImage& image);
// The text of the tokens of an image, given that of each token that occurs in it.
std::string TextOfTokens(const ProcessedImage& image, const std::vector<MarkerToken>& markers);

// The default of image_mean and image_std of several families.
inline constexpr std::array<double, 3> kClipMean{0.48145466, 0.4578275, 0.40821073};
inline constexpr std::array<double, 3> kClipDeviation{0.26862954, 0.26130258, 0.27577711};

// Integers of an image's sides must stay far from overflow.
inline constexpr int64_t kMaxProcessedPixels = int64_t{1} << 28;

Result<std::unique_ptr<ImageProcessor>> CreateLlama4Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateGemma3Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateGemma4Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateIdefics3Processor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateInternVlProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateLfm2VlProcessor(const ProcessorInputs& inputs);
// That of its tower: a square for CLIP and SigLIP, or Pixtral's.
Result<std::unique_ptr<ImageProcessor>> CreateLlavaProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreateLlavaNextProcessor(const ProcessorInputs& inputs);
Result<std::unique_ptr<ImageProcessor>> CreatePixtralProcessor(const ProcessorInputs& inputs);
// Qwen2-VL and its kin: which rule decides the size, and how patches are laid out.
enum class SmartResizeRule { kQwen, kGlm, kPaddle };
Result<std::unique_ptr<ImageProcessor>> CreateQwenProcessor(const ProcessorInputs& inputs,
                                                            SmartResizeRule rule);

}  // namespace sluice
