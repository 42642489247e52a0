// Image files that a client sends with a message.
#pragma once

#include <string>

#include "base/result.h"
#include "media/decode_image.h"

namespace sluice {

struct ImageFile {
  ImageHeader header;
  std::string url;  // a data: URL with the file's bytes
};

// Reads a file of at most 64 MiB. kInvalidArgument or kInvalidData if it is not an image that
// ReadImageHeader reads.
Result<ImageFile> ReadImageFile(const std::string& path);

}  // namespace sluice
