#include <algorithm>
#include <memory>

#include <webp/decode.h>
#include <webp/demux.h>

#include "media/byte_order.h"
#include "media/decoders.h"

namespace sluice {
namespace {

const uint8_t* WebpData(std::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

// Finds EXIF and XMP among the container's chunks.
void ReadWebpChunks(std::string_view bytes, StoredHeader& header) {
  size_t at = 12;
  while (bytes.size() - at >= 8) {
    const size_t length = Little32(bytes, at + 4);
    if (length > bytes.size() - at - 8) return;
    const std::string_view type = bytes.substr(at, 4);
    if (type == "EXIF") header.exif = bytes.substr(at + 8, length);
    if (type == "XMP ") header.xmp = bytes.substr(at + 8, length);
    at = std::min(bytes.size(), at + 8 + length + length % 2);
  }
}

// Decodes the first frame on its canvas, as libwebp's animation decoder outputs it.
Result<StoredPixels> DecodeFirstFrame(std::string_view bytes, bool has_alpha) {
  const WebPData data{WebpData(bytes), bytes.size()};
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0)
    return DamagedImage(ImageFormat::kWebp, "the decoder's version differs");
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  WebPAnimInfo info;
  uint8_t* canvas = nullptr;
  int time = 0;
  if (!decoder || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0 ||
      WebPAnimDecoderGetNext(decoder.get(), &canvas, &time) == 0) {
    return DamagedImage(ImageFormat::kWebp, "its first frame cannot be decoded");
  }
  StoredPixels pixels;
  pixels.mode = StoredPixels::Mode::kRgba;
  pixels.data.assign(canvas,
                     canvas + static_cast<size_t>(info.canvas_width) * info.canvas_height * 4);
  if (!has_alpha) {
    for (size_t i = 3; i < pixels.data.size(); i += 4) pixels.data[i] = 255;
  }
  return pixels;
}

Result<WebPBitstreamFeatures> FeaturesOf(std::string_view bytes) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(WebpData(bytes), bytes.size(), &features) != VP8_STATUS_OK) {
    return DamagedImage(ImageFormat::kWebp, "its header cannot be read");
  }
  return features;
}

}  // namespace

Result<StoredHeader> ReadWebpHeader(std::string_view bytes) {
  ASSIGN_OR_RETURN(const WebPBitstreamFeatures features, FeaturesOf(bytes));
  StoredHeader header{features.width, features.height, 0, {}, {}};
  // Memory for RGBA and the decoder's planes; for an animation, for two canvases and a copy of one.
  header.work_bytes =
      header.width * header.height * (features.has_animation != 0 ? 20 : 12) + (2 << 20);
  ReadWebpChunks(bytes, header);
  return header;
}

// Needs no deadline: a WebP image has at most 16383 x 16383 pixels and no passes, which limits the
// time.
Result<StoredPixels> DecodeWebp(std::string_view bytes, DecodeDeadline /*deadline*/) {
  ASSIGN_OR_RETURN(const WebPBitstreamFeatures features, FeaturesOf(bytes));
  if (features.has_animation != 0) return DecodeFirstFrame(bytes, features.has_alpha != 0);
  StoredPixels pixels;
  pixels.mode = features.has_alpha != 0 ? StoredPixels::Mode::kRgba : StoredPixels::Mode::kRgb;
  const int stride = features.width * ChannelsOf(pixels.mode);
  pixels.data.resize(static_cast<size_t>(stride) * features.height);
  const auto decode = features.has_alpha != 0 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (decode(WebpData(bytes), bytes.size(), pixels.data.data(), pixels.data.size(), stride) ==
      nullptr) {
    return DamagedImage(ImageFormat::kWebp, "the file is truncated or its data are wrong");
  }
  return pixels;
}

}  // namespace sluice
