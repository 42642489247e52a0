#include "base/firewall.h"

#include <pthread.h>

#include <cstring>
#include <exception>
#include <new>

#include "base/log.h"

namespace sluice {

std::string CaughtMessage() noexcept {
  // Copying a message allocates; if that fails, a short message that needs no allocation replaces
  // it.
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return "out of memory";
    } catch (const std::exception& exception) {
      const std::string message = exception.what();
      return message.empty() ? "unknown error" : message;
    } catch (...) {
      return "unknown error";
    }
  } catch (...) {
    return "out of memory";
  }
}

Error CaughtError() noexcept {
  ErrorCode code = ErrorCode::kInternal;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    code = ErrorCode::kResourceExhausted;
  } catch (...) {  // NOLINT(bugprone-empty-catch): kInternal
  }
  return {code, CaughtMessage(), ""};
}

void LogCaught(std::string_view component, std::string_view task) noexcept {
  const std::string message = CaughtMessage();
  try {
    LOG_ERROR(component, "{} failed: {}", task, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): without memory, no line can be logged either
  }
}

void NameThread(const char* name) noexcept {
  char shown[16] = {};  // limit of the system: 15 bytes and a terminating zero
  std::strncpy(shown, name, sizeof(shown) - 1);
  ::pthread_setname_np(::pthread_self(), shown);
}

}  // namespace sluice
