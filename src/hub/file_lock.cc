#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "hub/repository_cache.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kPoll(50);
constexpr int kPollsPerCall = 20;

// Whether `path` is still the open file. It may have been removed while waiting for its lock.
bool IsSameFile(int file, const std::filesystem::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

Result<FileLock> FileLock::Acquire(const std::filesystem::path& path,
                                   const std::function<void()>& waiting) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return CacheError("create", path.parent_path(), error.value());
  for (int polls = 1;; ++polls) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0664);
    if (file < 0) return CacheError("create", path, errno);
    FileLock lock{OwnedFd(file)};
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
      if (IsSameFile(file, path)) return lock;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return lock;
    if (polls % kPollsPerCall == 0) waiting();
    std::this_thread::sleep_for(kPoll);
  }
}

std::optional<FileLock> FileLock::TryAcquireExisting(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  FileLock lock{OwnedFd(file)};
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return lock;
}

}  // namespace sluice
