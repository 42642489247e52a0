// A lock file that huggingface_hub holds, too, while it writes a blob.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "base/owned_fd.h"
#include "base/result.h"

namespace sluice {

// Ownership: move-only; lets the lock go when destroyed. The file stays, so that those who wait for
// it and those who come later mean the same file.
class FileLock {
 public:
  // Waits until no other process has it, calling `waiting` about once a second meanwhile. Makes the
  // folders above it. kUnavailable if the file cannot be made. On a file system without locks it
  // returns at once, as if it had the lock: who writes twice writes the same bytes.
  static Result<FileLock> Acquire(const std::filesystem::path& path,
                                  const std::function<void()>& waiting);
  // None if another process has it, or there is no such file.
  static std::optional<FileLock> TryAcquireExisting(const std::filesystem::path& path);

 private:
  explicit FileLock(OwnedFd file) : file_(std::move(file)) {}

  OwnedFd file_;
};

}  // namespace sluice
