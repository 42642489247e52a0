// Where the bytes of an image come from: the URL of a content part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

enum class MediaScheme { kData, kHttp, kFile };

// kInvalidArgument for other schemes and for what is no URL.
Result<MediaScheme> MediaSchemeOf(std::string_view url);

// The most bytes that ReadDataUrl() allocates.
int64_t DataUrlBytes(std::string_view url);
// The bytes of data:[media type];base64,... The media type is not asked. kInvalidArgument for what
// is not base64.
Result<std::string> ReadDataUrl(std::string_view url);

// The bytes of file://PATH, which must be below `folder` after symbolic links are resolved, and at
// most `max_bytes`. kInvalidArgument names the option that forbids it; an empty `folder` forbids
// all.
Result<std::string> ReadLocalMedia(std::string_view url, const std::string& folder,
                                   uint64_t max_bytes);

}  // namespace sluice
