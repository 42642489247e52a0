#include "server/api/request_body.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json_count.h"
#include "server/api/json_fault.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr int kMaxDepth = 128;
constexpr size_t kMaxValues = size_t{1} << 20;  // Each takes some hundred bytes once parsed.
constexpr size_t kMaxIntegerDigits = 4300;      // As vLLM, whose interpreter reads no more.

tl::unexpected<ApiError> Unreadable() {
  ApiError error;
  error.detail = "There was an error parsing the body";
  return tl::unexpected<ApiError>(std::move(error));
}

tl::unexpected<ApiError> Malformed(std::string message, std::optional<std::string> param) {
  ApiError error;
  error.type = "Bad Request";
  error.message = std::move(message);
  error.param = std::move(param);
  return tl::unexpected<ApiError>(std::move(error));
}

// Why json::Parse refused `text` with `refusal`.
tl::unexpected<ApiError> FaultOf(std::string_view text, const Error& refusal) {
  if (!IsUtf8(text)) return Unreadable();
  const JsonFault fault = FindJsonFault(text, kMaxDepth);
  const std::string_view member = fault.member.empty() ? "the body" : fault.member;
  switch (fault.kind) {
    case JsonFault::Kind::kTooDeep: return Unreadable();
    case JsonFault::Kind::kNotFinite:
      return BadParameter(fmt::format("{} must be a finite number", member), member);
    case JsonFault::Kind::kSurrogate:
      return BadRequest(fmt::format(
          "{} contains half of a surrogate pair (\\ud800 to \\udfff alone), which is not text",
          member));
    case JsonFault::Kind::kSyntax: {
      const size_t characters = CountCharacters(text.substr(0, fault.offset));
      const std::string_view rest = text.substr(fault.offset);
      return Malformed(
          fmt::format("the body is not JSON: expected {} at character {}, found {}", fault.expected,
                      characters,
                      rest.empty() ? "the end of the body"
                                   : json::Write(std::string(TrimToCharacters(rest, 10)))),
          fmt::format("body.{}", characters));
    }
    case JsonFault::Kind::kNone: break;
  }
  return Malformed("the body is not JSON: " + refusal.message, "body");
}

bool HasHugeInteger(const json::Value& value) {
  const auto huge = [](const auto& elements, auto&& of) {
    return std::any_of(elements.begin(), elements.end(),
                       [&](const auto& element) { return HasHugeInteger(of(element)); });
  };
  if (value.is_big_integer()) return value.as_string().size() > kMaxIntegerDigits;
  if (value.is_array())
    return huge(
        value.as_array(), [](const auto& v) -> auto& { return v; });
  if (value.is_object())
    return huge(
        value.as_object(), [](const auto& m) -> auto& { return m.second; });
  return false;
}

bool IsJsonContentType(const HttpRequest& request) {
  const std::string* header = request.Header("content-type");
  if (header == nullptr) return false;
  const std::string type = AsciiLower(header->substr(0, header->find(';')));
  const size_t end = type.find_last_not_of(" \t");
  return type.substr(0, end == std::string::npos ? 0 : end + 1) == "application/json";
}

}  // namespace

ApiResult<json::Value> ParseBodyText(std::string_view text) {
  if (json::CountValues(text) > kMaxValues)
    return BadRequest(fmt::format("the request body holds more than {} JSON values", kMaxValues));
  json::ParseLimits limits;
  limits.max_depth = kMaxDepth;
  Result<json::Value> value = json::Parse(text, limits);
  if (!value) return FaultOf(text, value.error());
  if (text.size() > kMaxIntegerDigits && HasHugeInteger(*value)) return Unreadable();
  return *std::move(value);
}

ApiResult<json::Value> ParseRequestBody(const HttpRequest& request) {
  if (!IsJsonContentType(request)) {
    return Malformed("Unsupported Media Type: the content-type must be application/json",
                     std::nullopt);
  }
  std::string_view body = request.body;
  if (body.empty()) return json::Value();
  if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);  // A byte order mark.
  return ParseBodyText(body);
}

}  // namespace sluice
