#include "media/image_file.h"

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/base64.h"
#include "base/file.h"

namespace sluice {

Result<ImageFile> ReadImageFile(const std::string& path) {
  constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxBytes));
  ASSIGN_OR_RETURN(const ImageHeader header, ReadImageHeader(bytes));
  return ImageFile{
      header, fmt::format("data:image/{};base64,{}", AsciiLower(ImageFormatName(header.format)),
                          EncodeBase64(bytes))};
}

}  // namespace sluice
