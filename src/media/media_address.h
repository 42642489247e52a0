// Reads images from the URL of a content part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

enum class MediaScheme { kData, kHttp, kFile };

// Returns the scheme. kInvalidArgument for other schemes and invalid URLs.
Result<MediaScheme> MediaSchemeOf(std::string_view url);

// Returns the maximum number of bytes that ReadDataUrl() allocates.
int64_t DataUrlBytes(std::string_view url);
// Returns the bytes of data:[media type];base64,... The media type is ignored. kInvalidArgument for
// invalid base64.
Result<std::string> ReadDataUrl(std::string_view url);

// Returns the bytes of file://PATH. The file must be below `folder` after symbolic links are
// resolved, and have at most `max_bytes`. kInvalidArgument names the option that forbids it; an
// empty `folder` forbids all files.
Result<std::string> ReadLocalMedia(std::string_view url, const std::string& folder,
                                   uint64_t max_bytes);

}  // namespace sluice
