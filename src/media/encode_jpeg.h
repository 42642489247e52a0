// Encodes images of a benchmark as JPEG.
#pragma once

#include <string>

#include "base/result.h"
#include "media/image.h"

namespace sluice {

// Returns a baseline JPEG with the default settings of libjpeg and Pillow: quality 75, 4:2:0 chroma
// subsampling. kResourceExhausted if libjpeg runs out of memory. Thread safe. REQUIRES: sides of at
// most 65535.
Result<std::string> EncodeJpeg(const Image& image);

}  // namespace sluice
