#include "media/media_address.h"

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/base64.h"
#include "base/file.h"

namespace sluice {
namespace {

constexpr size_t kMaxShown = 100;

// Decodes %41 etc. Returns nullopt for invalid digits or a zero byte.
std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    int value = 0;
    for (size_t digit = 1; digit <= 2; ++digit) {
      if (i + digit >= text.size()) return std::nullopt;
      const int number = HexDigit(text[i + digit]);
      if (number < 0) return std::nullopt;
      value = value * 16 + number;
    }
    if (value == 0) return std::nullopt;
    out.push_back(static_cast<char>(value));
    i += 2;
  }
  return out;
}

// Returns whether `path` is `folder` or inside it. Both must be canonical.
bool IsBelow(const std::filesystem::path& path, const std::filesystem::path& folder) {
  auto at = path.begin();
  for (const std::filesystem::path& part : folder) {
    if (part.empty()) continue;  // after a trailing slash
    if (at == path.end() || *at != part) return false;
    ++at;
  }
  return true;
}

}  // namespace

Result<MediaScheme> MediaSchemeOf(std::string_view url) {
  const std::string scheme = AsciiLower(url.substr(0, url.substr(0, 16).find(':')));
  if (scheme == "data") return MediaScheme::kData;
  if (scheme == "http" || scheme == "https") return MediaScheme::kHttp;
  if (scheme == "file") return MediaScheme::kFile;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("The URL must be either a HTTP, data or file URL, found '{}'",
                          url.substr(0, kMaxShown)));
}

int64_t DataUrlBytes(std::string_view url) {
  return DecodedBytes(url);
}

Result<std::string> ReadDataUrl(std::string_view url) {
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument,
                "a data URL without a comma: expected data:image/png;base64,...");
  }
  const std::string_view before = url.substr(0, comma);
  if (!AsciiLower(before).ends_with(";base64")) {
    return Fail(ErrorCode::kInvalidArgument,
                "Only base64 data URLs are supported: expected data:image/png;base64,...");
  }
  return DecodeBase64(url.substr(comma + 1));
}

Result<std::string> ReadLocalMedia(std::string_view url, const std::string& folder,
                                   uint64_t max_bytes) {
  if (folder.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "Cannot load local files without `--allowed-local-media-path`.");
  }
  std::string_view rest = url.substr(std::string_view("file:").size());
  if (rest.starts_with("//")) rest.remove_prefix(2);
  if (rest.starts_with("localhost/")) rest.remove_prefix(std::string_view("localhost").size());
  const std::optional<std::string> decoded =
      PercentDecoded(rest.substr(0, rest.find_first_of("?#")));
  if (!decoded || !decoded->starts_with('/')) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("expected file:///PATH, found '{}'", url.substr(0, kMaxShown)));
  }
  std::error_code failed;
  const std::filesystem::path root = std::filesystem::canonical(folder, failed);
  if (failed)
    return Fail(ErrorCode::kInvalidArgument,
                "the folder of `--allowed-local-media-path` does not exist");
  const std::filesystem::path path = std::filesystem::canonical(*decoded, failed);
  // The message is the same for missing files and for files outside the folder.
  if (failed || !IsBelow(path, root)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("The file path {} must be a file below `--allowed-local-media-path {}`.",
                    decoded->substr(0, kMaxShown), folder));
  }
  Result<std::string> bytes = ReadFile(path, max_bytes);
  if (!bytes) return Fail(ErrorCode::kInvalidArgument, bytes.error().message);
  return bytes;
}

}  // namespace sluice
