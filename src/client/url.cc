#include "client/url.h"

#include <sys/un.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr uint16_t kHttpsPort = 443;
constexpr size_t kLongestSocketPath = sizeof(sockaddr_un::sun_path) - 1;

tl::unexpected<Error> Bad(std::string_view text, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not the address of a server (http://host:port, "
                          "https://host:port or unix:///file): {}",
                          text, why),
              "url");
}

Result<Url> UnixUrl(std::string_view whole, std::string_view file) {
  if (!file.starts_with('/'))
    return Bad(whole, "the socket file needs an absolute path, as in unix:///run/sluice.sock");
  if (file.size() > kLongestSocketPath) {
    return Bad(whole, fmt::format("the system allows {} bytes for the file of a socket, found {}",
                                  kLongestSocketPath, file.size()));
  }
  return Url{.host = "localhost", .socket = std::string(file)};
}

}  // namespace

Result<Url> ParseUrl(std::string_view text) {
  const std::string_view whole = text;
  Url url;
  if (text.starts_with("unix://")) return UnixUrl(whole, text.substr(7));
  if (text.starts_with("unix:")) return UnixUrl(whole, text.substr(5));
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    url.tls = text.substr(0, scheme) == "https";
    if (url.tls) url.port = kHttpsPort;
    if (!url.tls && text.substr(0, scheme) != "http")
      return Bad(whole, "the scheme must be http, https or unix");
    text.remove_prefix(scheme + 3);
  }
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
      return Bad(whole, "the port is not a number up to 65535");
  }
  return url;
}

std::string ServerText(const Url& url) {
  if (!url.socket.empty()) return "unix://" + url.socket;
  const bool v6 = url.host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}", url.tls ? "https" : "http", v6 ? "[" + url.host + "]" : url.host,
                     url.port);
}

}  // namespace sluice
