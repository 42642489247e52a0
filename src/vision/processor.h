// From a decoded image to the input of a model's tower, as the image processors of transformers 5
// do it.
//
// Resizing equals torchvision's antialiased filters on bytes: the "fast" processors, which
// transformers 5 and vLLM use (vision/resize.h). Scaling and normalization are computed in float32,
// in bfloat16 for Llama 4, as there (vision/pixel_values.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "media/image.h"
#include "vision/processed_image.h"

namespace sluice {

// The inputs of the tower for one image of a prompt: one, or with Gemma 3's pan and scan the whole
// image and its crops.
using ImageParts = std::vector<std::shared_ptr<const ProcessedImage>>;

// What decides how an image is processed and how it stands in a prompt.
struct ProcessorInputs {
  json::Value config;           // config.json
  json::Value image_processor;  // preprocessor_config.json, or `image_processor` of
                                // processor_config.json; null if neither is there
  json::Value processor;        // processor_config.json; null if it is not there
  json::Value overrides;        // --mm-processor-kwargs: an object, or null
  // The id of a special token by its text; nullopt where the vocabulary has none.
  std::function<std::optional<int32_t>(std::string_view)> token_id;
  // The text of a token by its id; "" where there is none.
  std::function<std::string(int32_t)> token_text;
};

// Reads the three files of a model's folder. kInvalidData: one that is no JSON object.
Result<ProcessorInputs> ReadProcessorFiles(const std::string& folder);

// The processor of one model.
//
// Thread safety: all methods may be called from any thread at once.
class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;

  // Null for a model that reads text alone. kUnsupported: a kind of processor, or a setting of one,
  // that is not known here. kInvalidData: files that contradict themselves or the vocabulary.
  static Result<std::unique_ptr<ImageProcessor>> Create(const ProcessorInputs& inputs);

  // kInvalidArgument where the reference refuses the image: ratio of its sides, a side that falls
  // to nothing.
  virtual Result<ImageParts> Process(const Image& image) const = 0;

  // The most bytes that Process() allocates for an image of this size, its result included:
  // reserved before it runs. nullopt where Process() refuses that size.
  virtual std::optional<int64_t> MemoryBytes(int width, int height) const = 0;

  // What takes the place of the placeholder before the prompt is tokenized: the tokens of `parts`,
  // in order, and the text that the reference puts around them.
  virtual std::string Expansion(const ImageParts& parts) const = 0;

  // What the chat template writes for one image.
  const std::string& placeholder() const { return placeholder_; }

 protected:
  std::string placeholder_;
};

}  // namespace sluice
