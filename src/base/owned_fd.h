// A file descriptor that is closed at the end of its scope.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/result.h"

namespace sluice {

// A file descriptor or none. Ownership: closes the descriptor; move-only.
class OwnedFd {
 public:
  OwnedFd() = default;
  // Takes ownership of `fd`. With -1, the result of failed system calls, it owns nothing.
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    OwnedFd(std::move(other)).Swap(*this);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  void Swap(OwnedFd& other) { std::swap(fd_, other.fd_); }

  int fd_ = -1;
};

// Takes ownership of the descriptor that a system call returned. If the descriptor is -1:
// kResourceExhausted with the call's name and the reason in errno. REQUIRES: no other call has
// changed errno.
Result<OwnedFd> OwnFd(int returned, const char* call);
// Like OwnFd, for constructors: throws std::system_error.
OwnedFd OwnFdOrThrow(int returned, const char* call);

}  // namespace sluice
