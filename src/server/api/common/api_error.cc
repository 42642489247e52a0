#include "server/api/common/api_error.h"

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/json.h"

namespace sluice {

tl::unexpected<ApiError> BadRequest(std::string message) {
  ApiError error;
  error.message = std::move(message);
  return tl::unexpected<ApiError>(std::move(error));
}

tl::unexpected<ApiError> BadParameter(std::string_view message, std::string_view name) {
  ApiError error;
  error.message = fmt::format("{} (parameter={})", message, name);
  error.param = std::string(name);
  return tl::unexpected<ApiError>(std::move(error));
}

tl::unexpected<ApiError> BadParameter(std::string_view message, std::string_view name,
                                      std::string_view value) {
  ApiError error;
  error.message = fmt::format("{} (parameter={}, value={})", message, name, value);
  error.param = std::string(name);
  return tl::unexpected<ApiError>(std::move(error));
}

tl::unexpected<ApiError> InvalidRequest(int status, std::string message, std::string param) {
  ApiError error;
  error.status = status;
  error.type = "invalid_request_error";
  error.message = std::move(message);
  error.param = std::move(param);
  return tl::unexpected<ApiError>(std::move(error));
}

tl::unexpected<ApiError> Unsupported(std::string_view feature, std::string_view name) {
  return BadParameter(
      fmt::format("{} is not supported by this server; leave `{}` out", feature, name), name);
}

ApiError AnswerTooLarge(uint64_t bytes) {
  return BadParameter(fmt::format("The answer exceeds this server's limit of {} bytes; lower n, "
                                  "max_tokens or logprobs, omit echo, or use streaming",
                                  bytes),
                      "n")
      .value();
}

ApiError ServiceUnavailable(std::string message) {
  ApiError error;
  error.status = 503;
  error.type = "ServiceUnavailableError";
  error.message = std::move(message);
  return error;
}

ApiError MemoryRefused(const RequestMemory& memory, uint64_t bytes) {
  MemoryRefusal refusal = RefusalOf(memory, bytes);
  if (refusal.status == 503) return ServiceUnavailable(std::move(refusal.message));
  ApiError error;
  error.status = refusal.status;
  error.message = std::move(refusal.message);
  return error;
}

ApiError OutOfMemory() {
  return ServiceUnavailable("The server is out of memory; try again later.");
}

ApiError CaughtApiError(std::string_view task) {
  LogCaught("server", task);
  if (CaughtError().code == ErrorCode::kResourceExhausted) return OutOfMemory();
  ApiError error;
  error.status = 500;
  error.type = "InternalServerError";
  error.message = "The server failed to answer this request; its log has the reason.";
  return error;
}

ApiStatus ReserveMemory(const std::shared_ptr<MemoryLease>& lease, uint64_t bytes) {
  if (lease == nullptr || lease->TryResize(bytes)) return {};
  return tl::unexpected<ApiError>(MemoryRefused(lease->memory(), bytes));
}

ApiError FromError(const Error& error) {
  ApiError result;
  result.message = error.message;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidData:
    case ErrorCode::kUnsupported: break;
    case ErrorCode::kNotFound:
      result.status = 404;
      result.type = "NotFoundError";
      break;
    case ErrorCode::kUnavailable:
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kCancelled: result = ServiceUnavailable(error.message); break;
    default: result.status = 500; result.type = "InternalServerError";
  }
  if (!error.param.empty()) result.param = error.param;
  return result;
}

namespace {

// Maximum number of bytes of a client's input that messages quote.
constexpr size_t kMaxQuoted = 16384;

// Error types of Anthropic's API.
std::string_view AnthropicType(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408: return "timeout_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

void AppendCut(std::string& out, std::string_view text) {
  if (text.size() <= kMaxQuoted) return json::AppendString(out, text);
  size_t end = kMaxQuoted;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  json::AppendString(out, std::string(text.substr(0, end)) + "...");
}

// Appends `"message":…,"type":…,"param":…,"code":…`.
void AppendMembers(std::string& out, const ApiError& error, bool spaced) {
  const std::string_view colon = spaced ? ": " : ":";
  const std::string_view comma = spaced ? ", " : ",";
  out.append("\"message\"").append(colon);
  AppendCut(out, error.message);
  out.append(comma).append("\"type\"").append(colon);
  json::AppendString(out, error.type);
  out.append(comma).append("\"param\"").append(colon);
  if (error.param) {
    AppendCut(out, *error.param);
  } else {
    out += "null";
  }
  out.append(comma).append("\"code\"").append(colon).append(std::to_string(error.status));
}

}  // namespace

std::string ErrorBody(const ApiError& error, bool spaced) {
  std::string out = spaced ? "{\"error\": {" : "{\"error\":{";
  AppendMembers(out, error, spaced);
  return out + "}}";
}

HttpResponse ErrorResponse(const ApiError& error, ApiDialect dialect) {
  if (!error.detail.empty()) return DetailResponse(error.status, error.detail);
  HttpResponse response;
  response.status = error.status;
  if (dialect == ApiDialect::kTrtllm) {
    response.body = R"({"object":"error",)";
    AppendMembers(response.body, error, /*spaced=*/false);
    response.body.push_back('}');
  } else {
    response.body = ErrorBody(error);
  }
  // Clients wait this long before they retry.
  if (error.status == 503 || error.status == 429)
    response.headers.push_back({"retry-after", std::to_string(error.retry_after)});
  return response;
}

std::string AnthropicErrorBody(const ApiError& error, ApiDialect dialect) {
  std::string out = R"({"type":"error","error":{"type":)";
  json::AppendString(out, dialect == ApiDialect::kVllm ? error.type : AnthropicType(error.status));
  out += R"(,"message":)";
  AppendCut(out, error.detail.empty() ? error.message : error.detail);
  return out + "}}";
}

HttpResponse AnthropicErrorResponse(const ApiError& error, ApiDialect dialect) {
  HttpResponse response = ErrorResponse(error);
  const bool is_of_a_field = error.type == "Bad Request" || !error.detail.empty();
  if (dialect != ApiDialect::kVllm || !is_of_a_field)
    response.body = AnthropicErrorBody(error, dialect);
  return response;
}

HttpResponse DetailResponse(int status, std::string_view detail) {
  HttpResponse response;
  response.status = status;
  response.body = "{\"detail\":";
  json::AppendString(response.body, detail);
  response.body += "}";
  return response;
}

HttpResponse JsonResponse(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

HttpResponse EventStreamHead() {
  HttpResponse response;
  response.content_type = "text/event-stream; charset=utf-8";
  return response;
}

}  // namespace sluice
