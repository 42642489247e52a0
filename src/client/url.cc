#include "client/url.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace sluice {
namespace {

tl::unexpected<Error> Bad(std::string_view text, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no address of a server (http://host:port): {}", text, why),
              "url");
}

}  // namespace

Result<Url> ParseUrl(std::string_view text) {
  const std::string_view whole = text;
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    if (text.substr(0, scheme) == "https") {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: this client speaks http only; put a TLS proxy in front", text),
                  "url");
    }
    if (text.substr(0, scheme) != "http") return Bad(whole, "the scheme must be http");
    text.remove_prefix(scheme + 3);
  }
  Url url;
  const size_t slash = std::min(text.find('/'), text.size());
  url.path = text.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  std::string_view authority = text.substr(0, slash);

  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return Bad(whole, "a bracket is not closed");
    url.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (url.host.empty()) return Bad(whole, "the host is missing");
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size())
      return Bad(whole, "the port is no number up to 65535");
  }
  return url;
}

}  // namespace sluice
