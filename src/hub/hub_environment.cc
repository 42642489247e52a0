#include "hub/hub_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/file.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxTokenBytes = 4096;

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FirstFromEnvironment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = FromEnvironment(name); !value.empty()) return value;
  }
  return "";
}

bool IsTrue(const std::string& value) {
  const std::string word = AsciiLower(value);
  return word == "1" || word == "on" || word == "yes" || word == "true";
}

}  // namespace

std::filesystem::path ExpandHome(const std::string& path, const std::string& home) {
  if (path == "~") return home;
  if (path.starts_with("~/")) return std::filesystem::path(home) / path.substr(2);
  return path;
}

HubEnvironment HubEnvironment::OfProcess() {
  HubEnvironment environment{
      .hf_hub_cache = FromEnvironment("HF_HUB_CACHE"),
      .huggingface_hub_cache = FromEnvironment("HUGGINGFACE_HUB_CACHE"),
      .hf_home = FromEnvironment("HF_HOME"),
      .xdg_cache_home = FromEnvironment("XDG_CACHE_HOME"),
      .home = FromEnvironment("HOME"),
      .hf_endpoint = FromEnvironment("HF_ENDPOINT"),
      .hf_token = FirstFromEnvironment({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}),
      .hf_token_path = FromEnvironment("HF_TOKEN_PATH"),
      .certificates = FirstFromEnvironment(
          {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_DIR"}),
      .http_proxy = FirstFromEnvironment({"http_proxy", "HTTP_PROXY"}),
      .offline = IsTrue(FirstFromEnvironment({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})),
      .no_implicit_token = IsTrue(FromEnvironment("HF_HUB_DISABLE_IMPLICIT_TOKEN")),
      .no_symlinks = IsTrue(FromEnvironment("HF_HUB_DISABLE_SYMLINKS")),
  };
  const std::string timeout = FromEnvironment("HF_HUB_DOWNLOAD_TIMEOUT");
  int seconds = 0;
  const auto read = std::from_chars(timeout.data(), timeout.data() + timeout.size(), seconds);
  if (read.ec == std::errc() && seconds > 0) environment.timeout_seconds = seconds;
  return environment;
}

std::filesystem::path HubEnvironment::HomeFolder() const {
  if (!hf_home.empty()) return ExpandHome(hf_home, home);
  if (!xdg_cache_home.empty()) return ExpandHome(xdg_cache_home, home) / "huggingface";
  return std::filesystem::path(home) / ".cache/huggingface";
}

std::filesystem::path HubEnvironment::CacheFolder() const {
  if (!hf_hub_cache.empty()) return ExpandHome(hf_hub_cache, home);
  if (!huggingface_hub_cache.empty()) return ExpandHome(huggingface_hub_cache, home);
  return HomeFolder() / "hub";
}

Result<std::string> HubEnvironment::Endpoint() const {
  std::string endpoint = hf_endpoint.empty() ? "https://huggingface.co" : hf_endpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool plain = std::none_of(endpoint.begin(), endpoint.end(), [](char c) {
    return c <= ' ' || c == '?' || c == '#' || c == '@' || c == 0x7f;
  });
  if (plain && (endpoint.starts_with("https://") || endpoint.starts_with("http://")))
    return endpoint;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("HF_ENDPOINT: expected the address of a hub such as "
                          "https://huggingface.co, found '{}'",
                          hf_endpoint),
              "HF_ENDPOINT");
}

Result<std::string> HubEnvironment::Token() const {
  std::string token = hf_token;
  std::string origin = "HF_TOKEN";
  if (token.empty() && !no_implicit_token) {
    const std::filesystem::path path =
        hf_token_path.empty() ? HomeFolder() / "token" : ExpandHome(hf_token_path, home);
    // Ignores a missing or unreadable file, because public models need no token.
    if (auto text = ReadFile(path, kMaxTokenBytes)) token = *std::move(text);
    origin = path.string();
  }
  token = std::string(AsciiTrim(token));
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (printable) return token;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: expected a token (hf_...) of letters and digits, found spaces or "
                          "other characters in it",
                          origin),
              "HF_TOKEN");
}

}  // namespace sluice
