// Settings for reading the images of requests. They are constant once the server runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "media/decode_image.h"
#include "media/media_fetcher.h"

namespace sluice {

struct MediaConfig {
  // Hosts, timeouts and sizes for images that are fetched by URL.
  MediaFetchConfig fetch;
  int64_t max_pixels = ImageLimits().max_pixels;  // maximum number of pixels of an image
  std::string local_path;  // the folder for file:// URLs; empty: none are allowed
  // The following three are JSON objects or empty.
  std::string limits;               // --limit-mm-per-prompt
  std::string io_settings;          // --media-io-kwargs
  std::string processor_overrides;  // --mm-processor-kwargs
  std::string model_folder;         // folder with the processor's files; empty: the tokenizer's
                                    // folder
  // For the cache of processed images; at most a quarter of the memory for requests.
  int64_t cache_bytes = 0;
  bool text_only = false;  // --language-model-only
};

// Parses --limit-mm-per-prompt: {"image": 4} or {"image": {"count": 4}}. kInvalidArgument for other
// values.
Result<int64_t> MaxImagesOf(const std::string& limits);
// Parses --media-io-kwargs: {"image": {"rgba_background_color": [255, 255, 255]}}. kInvalidArgument
// for other image settings.
Result<std::array<uint8_t, 3>> BackgroundOf(const std::string& settings);

}  // namespace sluice
