#include "base/log_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <mutex>

#include <fmt/format.h>

namespace sluice {
namespace {

// Reopens a pipe or terminal for non-blocking writes; -1 if that is not possible. The mode of the
// given descriptor is not changed, because other processes share it.
int OpenNonblocking(int file) {
  struct stat about {};
  if (fstat(file, &about) != 0 || !(S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode))) return -1;
  return open(fmt::format("/proc/self/fd/{}", file).c_str(),
              O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

// The mutex is held from poll() to write() for descriptors that may block. If poll() reports that a
// pipe is writable, the pipe accepts PIPE_BUF bytes without blocking, provided that no other thread
// or process writes in between.
std::mutex& WriteMutex() {
  static auto& mutex = *new std::mutex;  // never destroyed: used until the process ends
  return mutex;
}

bool WaitUntilWritable(int file, std::chrono::milliseconds time) {
  pollfd fd{file, POLLOUT, 0};
  return poll(&fd, 1, static_cast<int>(time.count())) > 0;
}

// Returns the first part of `text` to write in one call: whole lines if they fit.
std::string_view FirstPiece(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  const size_t end = text.rfind('\n', PIPE_BUF - 1);
  return text.substr(0, end == std::string_view::npos ? PIPE_BUF : end + 1);
}

bool WriteTo(int file, std::string_view text, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!text.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const bool last_try = left.count() <= 0;
    WaitUntilWritable(file, last_try ? std::chrono::milliseconds(0) : left);
    const std::lock_guard lock(WriteMutex());
    if (!WaitUntilWritable(file, std::chrono::milliseconds(0))) {
      if (last_try) return false;
      continue;
    }
    const std::string_view piece = FirstPiece(text);
    const ssize_t n = write(file, piece.data(), piece.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      if (last_try) return false;
      continue;
    }
    if (n <= 0) return true;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

bool WriteLogText(int file, std::string_view text, std::chrono::milliseconds patience) {
  const int nonblocking = OpenNonblocking(file);
  if (nonblocking < 0) return WriteTo(file, text, patience);
  const bool written = WriteTo(nonblocking, text, patience);
  close(nonblocking);
  return written;
}

}  // namespace sluice
