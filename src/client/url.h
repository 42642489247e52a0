// The address of a server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

struct Url {
  std::string host;  // "localhost" for a unix socket
  uint16_t port = 80;
  std::string path = {};    // without a slash at the end; "" for the root
  bool tls = false;         // whether the scheme is https
  std::string socket = {};  // path of a unix socket; "" for TCP
};

// Parses http://host[:port][/path], https://host[:port][/path] or unix:///FILE. http:// may be
// omitted; IPv6 addresses are in brackets. The default ports are 80 and 443.
Result<Url> ParseUrl(std::string_view text);

// Returns "http://host:8000", "https://[::1]:443" or "unix:///run/sluice.sock", without the path.
std::string ServerText(const Url& url);

}  // namespace sluice
