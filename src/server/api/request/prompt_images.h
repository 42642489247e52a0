// The images of a conversation: from content parts to tokens in the prompt.
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

// A member of parts that were converted from another API's request. It states where the client gave
// the part: "input[0].content[1]".
constexpr std::string_view kPlaceOfPart = "sluice_place";

// Whether a part of type `type` is an image.
bool IsImagePart(std::string_view type);

// Reads, decodes and processes the image parts of `messages` one after another. Parts have the form
// of a chat, {"type": "image_url", "image_url": {"url": ...}}; requests of other APIs are converted
// to it. `own_places`: parts may have kPlaceOfPart. Reserves memory before each step. Errors: 413
// or 503 if memory is refused; else 400, which names the part. Its causes: a model without a tower,
// too many images, a URL that is not allowed, bytes that are not an image, an image that the
// model's processor refuses, or more tokens in an image than the engine accepts.
ApiResult<std::vector<ImageParts>> ReadImages(const RouteCall& call, const json::Value& messages,
                                              bool own_places);

// Returns `text` with the placeholder of each image replaced by its expansion. 400 if the numbers
// of placeholders and images differ.
ApiResult<std::string> ExpandPlaceholders(const ModelContext& model, const std::string& text,
                                          const std::vector<ImageParts>& images);

// Returns the places of the images in `tokens`. 400 if one is incomplete, as in a truncated prompt.
ApiResult<std::vector<ImageInput>> PlaceImages(const std::vector<int32_t>& tokens,
                                               const std::vector<ImageParts>& images);

// Whether a request body contains images anywhere, and their HTTP URLs. A body with images runs as
// a long task, after images given by HTTP URL are fetched.
struct BodyImages {
  bool any = false;
  std::vector<std::string> http_urls;  // URLs to be fetched before the body is handled
};
BodyImages FindBodyImages(const json::Value& body);

}  // namespace sluice
