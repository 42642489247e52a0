// How images of requests are read, resolved from options; fixed once the server runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "media/media_fetcher.h"

namespace sluice {

struct MediaConfig {
  // Hosts, time and size of images by URL.
  MediaFetchConfig fetch;
  std::string local_path;  // the folder of file:// URLs; empty: none
  // JSON objects, or empty.
  std::string limits;               // --limit-mm-per-prompt
  std::string io_settings;          // --media-io-kwargs
  std::string processor_overrides;  // --mm-processor-kwargs
  std::string model_folder;         // with the processor's files; empty: that of the tokenizer
  int64_t cache_bytes =
      0;  // of processed images that are kept; at most a quarter of the memory of requests
  bool text_only = false;  // --language-model-only
};

// --limit-mm-per-prompt: {"image": 4} or {"image": {"count": 4}}. kInvalidArgument for others.
Result<int64_t> MaxImagesOf(const std::string& limits);
// --media-io-kwargs: {"image": {"rgba_background_color": [255, 255, 255]}}. kInvalidArgument for
// other settings of images.
Result<std::array<uint8_t, 3>> BackgroundOf(const std::string& settings);

}  // namespace sluice
