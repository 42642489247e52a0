// The images of a conversation: from content parts to what stands for them in the prompt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/api/common/api_error.h"
#include "server/api/context/route.h"
#include "server/processed_image_cache.h"

namespace sluice {

// In a part of a message that another API's request was made into: where the client gave it,
// "input[0].content[1]".
constexpr std::string_view kPlaceOfPart = "sluice_place";

// Whether a part of that type is an image.
bool IsImagePart(std::string_view type);

// Reads, decodes and processes every image part of `messages`, in order: those of chat requests
// {"type": "image_url", "image_url": {"url": ...}}, as other APIs are made into. `own_places`:
// parts may have kPlaceOfPart. Memory is reserved before each step. Errors are 400 that name the
// part: a model without a tower, too many images, a URL that is not allowed, bytes that are no
// image, an image that the model's processor refuses, one of more tokens than the engine takes; 413
// or 503 where memory is refused.
ApiResult<std::vector<ImageParts>> ReadImages(const RouteCall& call, const json::Value& messages,
                                              bool own_places);

// `text` with the placeholder of each image replaced by what stands for it. 400 where their numbers
// differ.
ApiResult<std::string> ExpandPlaceholders(const ModelContext& model, const std::string& text,
                                          const std::vector<ImageParts>& images);

// Where the images are in `tokens`. 400 where one is not whole, as in a prompt that was cut.
ApiResult<std::vector<ImageInput>> PlaceImages(const std::vector<int32_t>& tokens,
                                               const std::vector<ImageParts>& images);

// The image parts anywhere in a body, which decide on which threads it is handled.
struct BodyImages {
  bool any = false;
  std::vector<std::string> http_urls;  // to be fetched before
};
BodyImages FindBodyImages(const json::Value& body);

}  // namespace sluice
