#include "server/media_config.h"

#include <optional>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr int64_t kUnlimited = 999;  // the limit in vLLM

Result<json::Value> ObjectOf(const std::string& text, const std::string& option) {
  if (text.empty()) return json::Value(json::Value::Object{});
  Result<json::Value> value = json::Parse(text);
  if (value && value->is_object()) return value;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--{} must be a JSON object, found: {}", option, text.substr(0, 80)),
              option);
}

}  // namespace

Result<int64_t> MaxImagesOf(const std::string& limits) {
  const std::string option = "limit-mm-per-prompt";
  ASSIGN_OR_RETURN(const json::Value object, ObjectOf(limits, option));
  const json::Value* image = object.Find("image");
  if (image != nullptr && image->is_object()) {
    const JsonFields fields(*image, "--limit-mm-per-prompt.image.");
    ASSIGN_OR_RETURN(const std::optional<int64_t> count, fields.Integer("count", 0, 1 << 20));
    return count.value_or(kUnlimited);
  }
  const JsonFields fields(object, "--limit-mm-per-prompt.");
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, fields.Integer("image", 0, 1 << 20));
  return count.value_or(kUnlimited);
}

Result<std::array<uint8_t, 3>> BackgroundOf(const std::string& settings) {
  const std::string option = "media-io-kwargs";
  std::array<uint8_t, 3> background{255, 255, 255};
  ASSIGN_OR_RETURN(const json::Value object, ObjectOf(settings, option));
  const json::Value* image = object.Find("image");
  if (image == nullptr || image->is_null()) return background;
  const std::string expected =
      "--media-io-kwargs: expected {\"image\": {\"rgba_background_color\": [red, green, blue]}} "
      "with numbers from 0 to 255";
  if (!image->is_object()) return Fail(ErrorCode::kInvalidArgument, expected, option);
  for (const auto& [name, value] : image->as_object()) {
    if (name != "rgba_background_color" || !value.is_array() || value.as_array().size() != 3) {
      return Fail(ErrorCode::kInvalidArgument, expected, option);
    }
    for (size_t i = 0; i < 3; ++i) {
      const json::Value& channel = value.as_array()[i];
      if (!channel.is_integer() || channel.as_integer() < 0 || channel.as_integer() > 255) {
        return Fail(ErrorCode::kInvalidArgument, expected, option);
      }
      background[i] = static_cast<uint8_t>(channel.as_integer());
    }
  }
  return background;
}

}  // namespace sluice
