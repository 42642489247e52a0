#include "server/api/request/prompt_images.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "media/decode_image.h"
#include "media/media_address.h"
#include "server/api/common/field_reader.h"

namespace sluice {
namespace {

// An image part whose URL was found.
struct FoundImage {
  std::string place;  // for example "messages[0].content[1].image_url"
  const std::string* url = nullptr;
};

tl::unexpected<ApiError> RefuseImage(const std::string& place, std::string_view why) {
  ApiError error;
  error.message = fmt::format("{}: {}", place, why);
  error.param = place;
  return tl::unexpected<ApiError>(std::move(error));
}

// Reports another layer's error about the image at `place`.
tl::unexpected<ApiError> RefuseImage(const std::string& place, const Error& error) {
  ApiError shown = FromError(error);
  shown.message = fmt::format("{}: {}", place, error.message);
  shown.param = place;
  return tl::unexpected<ApiError>(std::move(shown));
}

// Returns the URL of a part, which is a string or an object with a URL.
const std::string* UrlOf(const json::Value& part) {
  const json::Value* url = part.Find("image_url");
  if (url != nullptr && url->is_object()) url = url->Find("url");
  return url != nullptr && url->is_string() ? &url->as_string() : nullptr;
}

ApiStatus FindImage(const json::Value& part, std::string place, bool own_places,
                    std::vector<FoundImage>& found) {
  const std::string type = TextAt(part, "type");
  if (!IsImagePart(type)) return {};
  const std::string own = own_places ? TextAt(part, kPlaceOfPart) : "";
  place = own.empty() ? place + ".image_url" : own;
  const std::string* url = UrlOf(part);
  if (url == nullptr) {
    return RefuseImage(
        place, fmt::format("expected an object with a string \"url\", found {}", Describe(part)));
  }
  found.push_back({std::move(place), url});
  return {};
}

ApiResult<std::vector<FoundImage>> FindImages(const json::Value& messages, bool own_places) {
  std::vector<FoundImage> found;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const json::Value* content = messages.as_array()[i].Find("content");
    if (content == nullptr || !content->is_array()) continue;
    for (size_t j = 0; j < content->as_array().size(); ++j) {
      API_RETURN_IF_ERROR(FindImage(content->as_array()[j],
                                    fmt::format("messages[{}].content[{}]", i, j), own_places,
                                    found));
    }
  }
  return found;
}

// The memory that a request takes while its images are read.
class ImageMemory {
 public:
  explicit ImageMemory(const RouteCall& call)
      : lease_(call.request.memory), base_(lease_ == nullptr ? 0 : lease_->bytes()) {}

  // Reserves memory for the finished images, and `more` for the one in progress.
  ApiStatus Reserve(int64_t more) {
    return ReserveMemory(lease_, base_ + kept_ + static_cast<uint64_t>(more));
  }
  bool TryReserve(uint64_t more) {
    return lease_ == nullptr || lease_->TryResize(base_ + kept_ + more);
  }
  void Keep(const ImageParts& parts) {
    for (const auto& part : parts) kept_ += static_cast<uint64_t>(part->bytes());
  }

 private:
  const std::shared_ptr<MemoryLease> lease_;
  const uint64_t base_;
  uint64_t kept_ = 0;
};

// If memory was refused because the request is too large, names the image in the error.
ApiStatus NameImage(ApiStatus reserved, const std::string& place, std::string_view what) {
  constexpr int kTooLarge = 413;
  if (reserved || reserved.error().status != kTooLarge) return reserved;
  reserved.error().message = fmt::format("{}: {}. {}", place, what, reserved.error().message);
  reserved.error().param = place;
  return reserved;
}

ApiResult<std::string> ReadBytes(const RouteCall& call, const FoundImage& image,
                                 ImageMemory& memory) {
  const Result<MediaScheme> scheme = MediaSchemeOf(*image.url);
  if (!scheme) return RefuseImage(image.place, scheme.error());
  Result<std::string> bytes = std::string();
  switch (*scheme) {
    case MediaScheme::kData:
      API_RETURN_IF_ERROR(
          NameImage(memory.Reserve(DataUrlBytes(*image.url)), image.place,
                    fmt::format("the file has {} bytes", DataUrlBytes(*image.url))));
      bytes = ReadDataUrl(*image.url);
      break;
    case MediaScheme::kFile: {
      const MediaConfig& config = call.model->config.media;
      API_RETURN_IF_ERROR(memory.Reserve(
          config.local_path.empty() ? 0 : static_cast<int64_t>(config.fetch.max_bytes)));
      bytes = ReadLocalMedia(*image.url, config.local_path, config.fetch.max_bytes);
      break;
    }
    case MediaScheme::kHttp: {
      const auto fetched =
          call.media == nullptr ? FetchedMedia::const_iterator() : call.media->find(*image.url);
      if (call.media != nullptr && fetched != call.media->end()) {
        bytes = fetched->second;
      } else {  // an image of a stored conversation: its URL is not in the request
        bytes = call.api.fetcher.Fetch(*image.url,
                                       [&](uint64_t more) { return memory.TryReserve(more); });
      }
      break;
    }
  }
  if (!bytes) return RefuseImage(image.place, bytes.error());
  return *std::move(bytes);
}

ApiResult<ImageParts> ProcessBytes(const ModelContext& model, const std::string& place,
                                   const std::string& bytes, ImageMemory& memory) {
  ImageLimits limits;
  limits.background = model.image_background;
  limits.max_pixels = model.config.media.max_pixels;
  const Result<ImageHeader> header = ReadImageHeader(bytes, limits);
  if (!header) return RefuseImage(place, header.error());
  const bool swaps = header->orientation >= 5;
  const std::optional<int64_t> work = model.image_processor->MemoryBytes(
      swaps ? header->height : header->width, swaps ? header->width : header->height);
  const int64_t rgb_bytes = int64_t{3} * header->width * header->height;
  API_RETURN_IF_ERROR(
      NameImage(memory.Reserve(static_cast<int64_t>(bytes.size()) +
                               std::max(header->decode_bytes, rgb_bytes + work.value_or(0))),
                place, fmt::format("the image has {} x {} pixels", header->width, header->height)));
  const Result<Image> image = DecodeImage(bytes, *header, limits);
  if (!image) return RefuseImage(place, image.error());
  Result<ImageParts> parts = model.image_processor->Process(*image);
  if (!parts) return RefuseImage(place, parts.error());
  return *std::move(parts);
}

ApiStatus CheckRows(const ModelContext& model, const std::string& place, const ImageParts& parts) {
  const int64_t most = model.engine->info().max_image_rows;
  for (const auto& part : parts) {
    if (part->num_embeddings <= most) continue;
    return RefuseImage(
        place, fmt::format(
                   "the image has {} tokens; at most {} are computed at a time: send a smaller one",
                   part->num_embeddings, most));
  }
  return {};
}

// 400 if the model or the server accepts no images. The message is vLLM's for text-only models.
ApiStatus CheckTakesImages(const ModelContext& model, const FoundImage& first, size_t count) {
  const EngineInfo& info = model.engine->info();
  const bool has_processor = model.image_processor != nullptr;
  if (has_processor && static_cast<int64_t>(count) > model.max_images) {
    return RefuseImage(
        first.place,
        fmt::format(
            "At most {} image(s) may be provided in one prompt (--limit-mm-per-prompt), found {}.",
            model.max_images, count));
  }
  if (has_processor && info.takes_images) return {};
  const std::string why = !model.no_images.empty() ? model.no_images : info.no_images;
  return RefuseImage(first.place, fmt::format("{} is not a multimodal model{}{}", model.name(),
                                              why.empty() ? "" : ": ", why));
}

void CollectImages(const json::Value& value, BodyImages& found) {
  if (value.is_array()) {
    for (const json::Value& item : value.as_array()) CollectImages(item, found);
    return;
  }
  if (!value.is_object()) return;
  const std::string type = TextAt(value, "type");
  if (IsImagePart(type) || type == "input_image" || type == "image") {
    const std::string* url = UrlOf(value);
    const json::Value* source = value.Find("source");
    const json::Value* of_source = source == nullptr ? nullptr : source->Find("url");
    if (url == nullptr && of_source != nullptr && of_source->is_string())
      url = &of_source->as_string();
    found.any = true;
    if (url != nullptr && AsciiLower(url->substr(0, 4)) == "http") found.http_urls.push_back(*url);
    return;
  }
  for (const auto& [name, member] : value.as_object()) CollectImages(member, found);
}

}  // namespace

bool IsImagePart(std::string_view type) {
  return type == "image_url" || type == "input_image";
}

ApiResult<std::vector<ImageParts>> ReadImages(const RouteCall& call, const json::Value& messages,
                                              bool own_places) {
  API_ASSIGN_OR_RETURN(const std::vector<FoundImage> found, FindImages(messages, own_places));
  std::vector<ImageParts> images;
  if (found.empty()) return images;
  const ModelContext& model = *call.model;
  API_RETURN_IF_ERROR(CheckTakesImages(model, found.front(), found.size()));
  ImageMemory memory(call);
  for (const FoundImage& image : found) {
    if (call.client->closed() || call.api.draining) {
      return tl::unexpected<ApiError>(ServiceUnavailable(kServerIsShuttingDown));
    }
    API_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(call, image, memory));
    const ProcessedImageCache::Key key = model.image_cache->KeyOf(bytes);
    ImageParts parts = model.image_cache->Find(key);
    call.api.metrics->OnImage(/*is_cached=*/!parts.empty());
    if (parts.empty()) {
      API_ASSIGN_OR_RETURN(parts, ProcessBytes(model, image.place, bytes, memory));
      API_RETURN_IF_ERROR(CheckRows(model, image.place, parts));
      model.image_cache->Keep(key, parts);
    }
    memory.Keep(parts);
    images.push_back(std::move(parts));
  }
  API_RETURN_IF_ERROR(memory.Reserve(0));
  return images;
}

ApiResult<std::string> ExpandPlaceholders(const ModelContext& model, const std::string& text,
                                          const std::vector<ImageParts>& images) {
  if (images.empty()) return text;
  const std::string& placeholder = model.image_processor->placeholder();
  std::string expanded;
  size_t count = 0;
  size_t at = 0;
  for (;;) {
    const size_t next = text.find(placeholder, at);
    expanded.append(text, at, next - at);
    if (next == std::string::npos) break;
    if (count < images.size()) expanded += model.image_processor->Expansion(images[count]);
    ++count;
    at = next + placeholder.size();
  }
  if (count == images.size()) return expanded;
  return BadParameter(
      fmt::format("the prompt has {} placeholders of images ({}), and the messages have {} images: "
                  "the text of a message must not contain the placeholder, and the chat template "
                  "must show every image",
                  count, placeholder, images.size()),
      "messages");
}

ApiResult<std::vector<ImageInput>> PlaceImages(const std::vector<int32_t>& tokens,
                                               const std::vector<ImageParts>& images) {
  std::vector<ImageInput> placed;
  auto at = tokens.begin();
  for (const ImageParts& parts : images) {
    for (const auto& part : parts) {
      at = std::search(at, tokens.end(), part->tokens.begin(), part->tokens.end());
      if (at == tokens.end()) {
        return BadParameter(
            "truncate_prompt_tokens cuts an image in two: omit it, or send fewer images",
            "truncate_prompt_tokens");
      }
      placed.push_back({at - tokens.begin(), part});
      at += static_cast<std::ptrdiff_t>(part->tokens.size());
    }
  }
  return placed;
}

BodyImages FindBodyImages(const json::Value& body) {
  BodyImages found;
  CollectImages(body, found);
  return found;
}

}  // namespace sluice
