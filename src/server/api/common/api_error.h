// Errors of the API, and their JSON in the shapes that clients read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "base/result.h"
#include "server/http/http_types.h"
#include "server/request_memory.h"
#include "server/server_config.h"

namespace sluice {

struct ApiError {
  int status = 400;
  std::string type = "BadRequestError";
  std::string message;
  std::optional<std::string> param;
  // If not empty, the whole body is {"detail": ...}, as from vLLM's web framework.
  std::string detail;
  int64_t retry_after = 1;  // the header Retry-After in seconds; for 429 and 503
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;
using ApiStatus = tl::expected<void, ApiError>;

// 400 for an error that is not about a single field ("param": null).
tl::unexpected<ApiError> BadRequest(std::string message);
// 400 with the message `message (parameter=name)`.
tl::unexpected<ApiError> BadParameter(std::string_view message, std::string_view name);
// 400 with the message `message (parameter=name, value=value)`.
tl::unexpected<ApiError> BadParameter(std::string_view message, std::string_view name,
                                      std::string_view value);
// An error of type "invalid_request_error", the type for responses and their items.
tl::unexpected<ApiError> InvalidRequest(int status, std::string message, std::string param);
// The error for a feature that requests can name but this server lacks.
tl::unexpected<ApiError> Unsupported(std::string_view feature, std::string_view name);

// The error for an answer of more than `bytes`.
ApiError AnswerTooLarge(uint64_t bytes);
// 503, after which clients retry.
ApiError ServiceUnavailable(std::string message);
constexpr const char* kServerIsShuttingDown = "The server is shutting down.";

// 413 or 503 for a request whose `bytes` do not fit into the memory for requests.
ApiError MemoryRefused(const RequestMemory& memory, uint64_t bytes);
// 503: the system is out of memory.
ApiError OutOfMemory();
// Logs the exception that is being handled. Returns OutOfMemory(), or 500 without the exception's
// message, which is not for clients. REQUIRES: the caller is in a catch block.
ApiError CaughtApiError(std::string_view task);
// Reserves `bytes` in total for a request and everything derived from it. Call before the
// allocation.
ApiStatus ReserveMemory(const std::shared_ptr<MemoryLease>& lease, uint64_t bytes);

// Converts an error of another layer: 400, 404, 503 or 500, depending on its code.
ApiError FromError(const Error& error);

// Returns {"error":{"message":…,"type":…,"param":…,"code":…}}. `spaced` puts a space after every
// ':' and ','.
std::string ErrorBody(const ApiError& error, bool spaced = false);
// Returns the response. trtllm-serve's errors are flat:
// {"object":"error","message":…,"type":…,"param":…, "code":…}.
HttpResponse ErrorResponse(const ApiError& error, ApiDialect dialect = ApiDialect::kSluice);
// Returns {"type":"error","error":{"type":…,"message":…}}, the shape of Anthropic's API. The status
// determines the type; with kVllm it is the type that vLLM uses.
std::string AnthropicErrorBody(const ApiError& error, ApiDialect dialect);
// Returns the response with AnthropicErrorBody(). With kVllm, an error about a field of the request
// body has the shape of ErrorResponse() instead, with `param`, as in vLLM.
HttpResponse AnthropicErrorResponse(const ApiError& error, ApiDialect dialect);
HttpResponse DetailResponse(int status, std::string_view detail);
HttpResponse JsonResponse(std::string body);
// The head of a stream of server-sent events.
HttpResponse EventStreamHead();

}  // namespace sluice

#define API_RETURN_IF_ERROR(expression)                                            \
  do {                                                                             \
    if (auto sluice_status = (expression); !sluice_status)                         \
      return tl::unexpected<::sluice::ApiError>(std::move(sluice_status).error()); \
  } while (false)
#define API_ASSIGN_OR_RETURN(declaration, expression) \
  API_ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(sluice_result_, __LINE__), declaration, expression)
#define API_ASSIGN_OR_RETURN_INNER(result, declaration, expression)                  \
  auto result = (expression);                                                        \
  if (!result) return tl::unexpected<::sluice::ApiError>(std::move(result).error()); \
  declaration = *std::move(result)
