// The address of a server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

struct Url {
  std::string host;
  uint16_t port = 80;
  std::string path;  // without a slash at the end; "" for the root
};

// http://host[:port][/path]; the scheme may be missing, an IPv6 address stands in brackets.
// kUnsupported for https.
Result<Url> ParseUrl(std::string_view text);

}  // namespace sluice
