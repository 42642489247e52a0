// A lock file. huggingface_hub holds the same lock while it writes a blob.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "base/owned_fd.h"
#include "base/result.h"

namespace sluice {

// Ownership: move-only; releases the lock when destroyed. The file remains, so that all processes
// use the same file.
class FileLock {
 public:
  // Waits until no other process holds the lock, and calls `waiting` about once a second meanwhile.
  // Creates parent folders. kUnavailable if the file cannot be created. On a file system without
  // locks it returns immediately, as if locked, because concurrent writers write the same bytes.
  static Result<FileLock> Acquire(const std::filesystem::path& path,
                                  const std::function<void()>& waiting);
  // Returns nullopt if another process holds the lock, or if the file does not exist.
  static std::optional<FileLock> TryAcquireExisting(const std::filesystem::path& path);

 private:
  explicit FileLock(OwnedFd file) : file_(std::move(file)) {}

  OwnedFd file_;
};

}  // namespace sluice
