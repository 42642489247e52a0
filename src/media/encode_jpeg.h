// JPEG files of images that a benchmark sends.
#pragma once

#include <string>

#include "base/result.h"
#include "media/image.h"

namespace sluice {

// A baseline file with libjpeg's own settings, which are Pillow's, too: quality 75, colors at half
// of the resolution in both directions. kResourceExhausted where libjpeg has no memory.
// Thread safe. REQUIRES: sides of at most 65535.
Result<std::string> EncodeJpeg(const Image& image);

}  // namespace sluice
