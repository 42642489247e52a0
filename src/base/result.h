// Errors as values. A function that can fail for a reason outside the program (a bad file, a bad
// request, a full machine) returns Result<T>. A broken contract between two parts of the program is
// a CHECK (base/check.h).
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace sluice {

// The kind of a failure, which determines the HTTP status and the exit code.
enum class ErrorCode {
  kInvalidArgument,  // The caller's input is wrong (HTTP 400, exit 2).
  kNotFound,         // A named thing does not exist (HTTP 404).
  kUnsupported,  // Valid, but not supported by this program or machine (HTTP 400 or 501, exit 3).
  kInvalidData,  // A file is damaged or inconsistent (exit 3).
  kResourceExhausted,  // Not enough memory or another resource (HTTP 503, exit 4).
  kUnavailable,   // Temporarily impossible: shutting down, overloaded (HTTP 503); for hub files:
                  // offline or missing (exit 5).
  kAddressInUse,  // The address cannot be bound (exit 6).
  kCancelled,     // The caller disconnected or aborted.
  kInternal,      // An internal fault (HTTP 500, exit 1).
};

// `message` is for people: what was expected, what was found, what to do. `param` names the request
// field, option, file or tensor at fault; "" if there is none.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param;

  // Returns `error` with "context: " before its message.
  Error In(std::string_view context) && {
    message = std::string(context) + ": " + message;
    return std::move(*this);
  }
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

// Use in any function that returns a Result: return Fail(ErrorCode::kInvalidData, "...");
inline tl::unexpected<Error> Fail(ErrorCode code, std::string message, std::string param = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(param)});
}

}  // namespace sluice

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// Evaluates a Result or Status; returns its error from the enclosing function.
#define RETURN_IF_ERROR(expression)                                             \
  do {                                                                          \
    if (auto sluice_status = (expression); !sluice_status)                      \
      return tl::unexpected<::sluice::Error>(std::move(sluice_status).error()); \
  } while (false)

// Example: ASSIGN_OR_RETURN(auto config, LoadConfig(path));
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(sluice_result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(result, declaration, expression)                   \
  auto result = (expression);                                                     \
  if (!result) return tl::unexpected<::sluice::Error>(std::move(result).error()); \
  declaration = *std::move(result)
