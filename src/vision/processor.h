// Converts a decoded image to the input of a model's tower, as transformers 5's image processors
// do.
//
// Resizing equals torchvision's antialiased filters on bytes, as in the "fast" processors of
// transformers 5 and vLLM (vision/resize.h). As in transformers, scaling and normalization are in
// float32, for Llama 4 in bfloat16 (vision/pixel_values.h).
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

// The tower inputs for one image of a prompt: a single input or, with Gemma 3's pan and scan, the
// whole image and its crops.
using ImageParts = std::vector<std::shared_ptr<const ProcessedImage>>;

// Files and settings that determine how images are processed and represented in a prompt.
struct ProcessorInputs {
  json::Value config;           // config.json
  json::Value image_processor;  // preprocessor_config.json, or `image_processor` of
                                // processor_config.json; null if neither exists
  json::Value processor;        // processor_config.json; null if it does not exist
  json::Value overrides;        // --mm-processor-kwargs: an object, or null
  // Returns the id of a special token by its text; nullopt if the vocabulary lacks it.
  std::function<std::optional<int32_t>(std::string_view)> token_id;
  // Returns the text of a token by its id; "" if there is none.
  std::function<std::string(int32_t)> token_text;
};

// Reads the three files of a model's folder. kInvalidData if one is not a JSON object.
Result<ProcessorInputs> ReadProcessorFiles(const std::string& folder);

// The image processor of one model.
//
// Thread safety: all methods may be called from any thread.
class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;

  // Returns null for a text-only model. kUnsupported: an unknown kind of processor, or an
  // unsupported setting. kInvalidData: the files contradict each other or the vocabulary.
  static Result<std::unique_ptr<ImageProcessor>> Create(const ProcessorInputs& inputs);

  // Processes an image. kInvalidArgument if the reference refuses it because of its aspect ratio,
  // or because a side would be 0.
  virtual Result<ImageParts> Process(const Image& image) const = 0;

  // Returns the maximum number of bytes that Process() allocates for an image of this size,
  // including its result; reserve them before calling it. nullopt if Process() refuses that size.
  virtual std::optional<int64_t> MemoryBytes(int width, int height) const = 0;

  // Returns the text that replaces the placeholder before the prompt is tokenized: the tokens of
  // `parts`, in order, with the text that the reference puts around them.
  virtual std::string Expansion(const ImageParts& parts) const = 0;

  // Returns the text that the chat template writes for each image.
  const std::string& placeholder() const { return placeholder_; }

 protected:
  std::string placeholder_;
};

}  // namespace sluice
