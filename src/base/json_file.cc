#include "base/json_file.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{8} << 20;
constexpr std::string_view kNonFinite[] = {"-Infinity", "Infinity", "NaN"};

// Puts NaN, Infinity and -Infinity, which Python's json writes, in quotes. So a reader that expects
// a number reports an error that names the field.
std::string QuoteNonFinite(std::string_view text) {
  std::string quoted;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string) {
      const auto word = std::find_if(std::begin(kNonFinite), std::end(kNonFinite),
                                     [&](auto known) { return text.substr(i).starts_with(known); });
      if (word != std::end(kNonFinite)) {
        quoted += fmt::format("\"{}\"", *word);
        i += word->size() - 1;
        continue;
      }
    }
    quoted += text[i];
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) quoted += text[++i];
  }
  return quoted;
}

}  // namespace

Result<json::Value> ReadJsonObject(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  auto value = json::Parse(text);
  if (!value) {
    if (auto finite = json::Parse(QuoteNonFinite(text))) value = *std::move(finite);
  }
  if (!value) {
    Error error = std::move(value).error().In(path.string());
    error.code = ErrorCode::kInvalidData;
    error.param = path.filename().string();
    return tl::unexpected<Error>(std::move(error));
  }
  if (!value->is_object()) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: must be a JSON object, found {}", path.string(), ShortText(*value)),
        path.filename().string());
  }
  return *std::move(value);
}

}  // namespace sluice
