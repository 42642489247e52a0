#include "base/owned_fd.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

namespace sluice {

Result<OwnedFd> OwnFd(int returned, const char* call) {
  if (returned >= 0) return OwnedFd(returned);
  const int error = errno;
  const bool too_many = error == EMFILE || error == ENFILE;
  return Fail(ErrorCode::kResourceExhausted,
              fmt::format("{}: {}{}", call, std::strerror(error),
                          too_many ? "; raise the limit of open files (ulimit -n)" : ""));
}

OwnedFd OwnFdOrThrow(int returned, const char* call) {
  if (returned < 0) throw std::system_error(errno, std::generic_category(), call);
  return OwnedFd(returned);
}

}  // namespace sluice
