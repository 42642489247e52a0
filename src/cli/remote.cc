#include "cli/remote.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/file.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxKeyFileBytes = 1 << 20;

// Returns the first line that is not blank or a comment.
Result<std::string> FirstKeyIn(const std::string& file) {
  auto text = ReadFile(file, kMaxKeyFileBytes);
  if (!text) return tl::unexpected<Error>(std::move(text).error().In("--api-key-file"));
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = AsciiTrim(rest.substr(0, end), " \t\r");
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with("sha256:")) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--api-key-file {}: its first line is the hash of a key, with which "
                              "a server checks keys; a client needs the key itself",
                              file),
                  "api-key-file");
    }
    return std::string(line);
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--api-key-file {}: expected a key on a line, found none", file),
              "api-key-file");
}

Status CheckTlsOptions(const options::Settings& settings, const Url& url) {
  for (const std::string_view name : {"cacert", "client-cert", "client-key"}) {
    if (url.tls || !settings.Given(name)) continue;
    const std::string_view flag = options::FlagName(options::Find(name));
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: the connection to {} is not encrypted; use https:// in its "
                            "address, or omit the option",
                            flag, ServerText(url)),
                std::string(flag));
  }
  return {};
}

}  // namespace

std::map<std::string, std::string> Remote::headers() const {
  if (api_key.empty()) return {};
  return {{"Authorization", "Bearer " + api_key}};
}

Result<std::string> GivenKey(const options::Settings& settings) {
  if (const auto file = settings.Text("client-key-file")) return FirstKeyIn(*file);
  if (const auto keys = settings.List("api-key"); !keys.empty()) return keys[0];
  return std::string();
}

Result<std::string> ClientKey(const options::Settings& settings) {
  ASSIGN_OR_RETURN(std::string given, GivenKey(settings));
  if (!given.empty()) return given;
  const char* key = std::getenv("OPENAI_API_KEY");
  return std::string(key == nullptr ? "" : key);
}

Result<Remote> RemoteAt(const options::Settings& settings, const std::string& address) {
  Remote remote;
  ASSIGN_OR_RETURN(remote.url, ParseUrl(address));
  ASSIGN_OR_RETURN(remote.api_key, ClientKey(settings));
  RETURN_IF_ERROR(CheckTlsOptions(settings, remote.url));
  if (!remote.url.tls) return remote;
  ASSIGN_OR_RETURN(remote.tls, ClientTls::Load({.authorities = settings.TextOr("cacert"),
                                                .insecure = settings.Flag("insecure"),
                                                .certificate = settings.TextOr("client-cert"),
                                                .key = settings.TextOr("client-key")}));
  return remote;
}

}  // namespace sluice::cli
