#include "checkpoint/schemes/settings.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/log.h"

namespace sluice {

bool IsEmptySetting(const json::Value& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_string()) return value.as_string().empty();
  if (value.is_array()) return value.as_array().empty();
  return value.is_object() && value.as_object().empty();
}

tl::unexpected<Error> UnsupportedSetting(const std::string& where, std::string_view name,
                                         const json::Value& found, std::string_view supported) {
  std::string text = found.is_array() || found.is_object() ? json::Write(found) : ShortText(found);
  if (text.size() > 100) text = text.substr(0, 100) + "...";
  const std::string field = fmt::format("{}.{}", where, name);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} {} is not supported, expected {}", field, text, supported), field);
}

Status CheckKeys(const json::Value& object, const std::string& where,
                 std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.as_object()) {
    if (std::find(known.begin(), known.end(), key) != known.end() || IsEmptySetting(value))
      continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}.{} is an unknown setting that may change the meaning of the "
                            "weights; known settings are {}",
                            where, key, fmt::join(known, ", ")),
                fmt::format("{}.{}", where, key));
  }
  return {};
}

Status CheckString(const json::Value& object, const std::string& where, std::string_view name,
                   std::initializer_list<std::string_view> allowed) {
  const json::Value* value = object.Find(name);
  if (value == nullptr || value->is_null()) return {};
  if (value->is_string() &&
      std::find(allowed.begin(), allowed.end(), AsciiLower(value->as_string())) != allowed.end()) {
    return {};
  }
  return UnsupportedSetting(where, name, *value, fmt::format("{}", fmt::join(allowed, " or ")));
}

Status CheckBool(const json::Value& object, const std::string& where, std::string_view name,
                 bool allowed) {
  const json::Value* value = object.Find(name);
  if (value == nullptr || value->is_null()) return {};
  if (value->is_bool() && value->as_bool() == allowed) return {};
  return UnsupportedSetting(where, name, *value, allowed ? "true" : "false");
}

Status CheckEmpty(const json::Value& object, const std::string& where, std::string_view name,
                  std::string_view why) {
  const json::Value* value = object.Find(name);
  if (value == nullptr || IsEmptySetting(*value)) return {};
  return UnsupportedSetting(where, name, *value, fmt::format("none ({})", why));
}

Result<bool> ReadKvCacheScheme(const json::Value* value, const std::string& where,
                               std::string_view name) {
  if (value == nullptr || IsEmptySetting(*value)) return false;
  constexpr const char* kSupported =
      "FP8 with one scale for the keys and one for the values, or INT8";
  if (value->is_string()) {
    const std::string text = AsciiLower(value->as_string());
    if (text == "fp8" || text == "fp8_e4m3" || text == "static") return true;
    if (text == "none" || text == "auto") return false;
    return UnsupportedSetting(where, name, *value, kSupported);
  }
  if (!value->is_object()) return UnsupportedSetting(where, name, *value, kSupported);
  const JsonFields fields(*value, fmt::format("{}.{}.", where, name));
  ASSIGN_OR_RETURN(const auto bits, fields.Integer("num_bits", 0, 64));
  ASSIGN_OR_RETURN(const auto type, fields.String("type"));
  const std::string inside = fmt::format("{}.{}", where, name);
  if (bits.value_or(8) == 8 && type && AsciiLower(*type) == "int") {
    // This is only a warning: the weights do not depend on the cache's type, and wider caches are
    // more accurate.
    LOG_WARNING("checkpoint",
                "{} specifies an INT8 KV cache, which is not supported: --kv-cache-dtype "
                "determines the type, and the checkpoint's scales for keys and values are not used",
                inside);
    return false;
  }
  RETURN_IF_ERROR(CheckBool(*value, inside, "symmetric", true));
  RETURN_IF_ERROR(CheckBool(*value, inside, "dynamic", false));
  RETURN_IF_ERROR(CheckString(*value, inside, "strategy", {"tensor"}));
  if (bits.value_or(8) != 8 || AsciiLower(type.value_or("float")) != "float")
    return UnsupportedSetting(where, name, *value, kSupported);
  return true;
}

}  // namespace sluice
