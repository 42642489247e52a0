#include "server/api/common/request_body.h"
#include "base/utf8.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json_count.h"
#include "base/json_place.h"
#include "server/api/common/python_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxDepth = 128;
constexpr size_t kMaxValues = size_t{1} << 20;  // each value takes about 100 bytes once parsed
constexpr size_t kMaxDigits = 4300;  // as in vLLM, because Python does not parse longer numbers

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

// Returns the error for `text`, which the parser refused. `fault`: the offset where the parser
// stopped; npos if unknown.
tl::unexpected<ApiError> FaultOf(std::string_view text, const Error& refusal, size_t fault) {
  if (!IsValidUtf8(text)) return Unreadable();
  if (refusal.code == ErrorCode::kUnsupported) return BadRequest(refusal.message);
  if (fault == std::string_view::npos) return Malformed(refusal.message, "body");
  const size_t characters = CountCharacters(text.substr(0, fault));
  const std::string_view rest = TrimToCharacters(text.substr(fault), 10);
  const json::TextPlace place = json::PlaceOf(text, fault);
  return Malformed(
      fmt::format("{} (line {}, column {}); found {}", refusal.message, place.line, place.column,
                  rest.empty() ? "the end" : json::Write(std::string(rest))),
      fmt::format("body.{}", characters));
}

bool IsJsonContentType(const HttpRequest& request) {
  const std::string* header = request.Header("content-type");
  if (header == nullptr) return false;
  return AsciiLower(AsciiTrim(std::string_view(*header).substr(0, header->find(';')), " \t")) ==
         "application/json";
}

ApiStatus CheckBodySize(const json::TextSize& size) {
  if (size.values > kMaxValues)
    return BadRequest(
        fmt::format("the request body contains more than {} JSON values", kMaxValues));
  if (size.depth > kMaxDepth || size.digits > kMaxDigits) return Unreadable();
  return {};
}

}  // namespace

ApiResult<json::Value> ParseBodyText(std::string_view text) {
  API_RETURN_IF_ERROR(CheckBodySize(json::Measure(text)));
  size_t fault = std::string_view::npos;
  Result<json::Value> value = json::ParseWithPlace(text, {}, fault);
  if (!value) return FaultOf(text, value.error(), fault);
  return *std::move(value);
}

ApiResult<json::Value> ParseRequestBody(const HttpRequest& request) {
  if (!IsJsonContentType(request)) {
    return Malformed("Unsupported Media Type: the content-type must be application/json",
                     std::nullopt);
  }
  if (request.body.empty()) return json::Value();
  std::string_view text = request.body;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // skips a byte order mark
  const json::TextSize size = json::Measure(text);
  API_RETURN_IF_ERROR(CheckBodySize(size));
  const size_t space = request.body.capacity();
  API_RETURN_IF_ERROR(ReserveMemory(request.memory, space + json::ParseMemory(size, text.size())));
  const bool is_padded = space >= request.body.size() + json::kTextPadding;
  size_t fault = std::string_view::npos;
  Result<json::Value> value =
      is_padded ? json::ParsePadded(text, {}, fault) : json::ParseWithPlace(text, {}, fault);
  if (!value) return FaultOf(text, value.error(), fault);
  return *std::move(value);
}

}  // namespace sluice
