// Test helpers for dropping files from the page cache.
#pragma once

#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/owned_fd.h"

namespace sluice::testing {

// Writes the file's pages to the disk, because only clean pages can be dropped from the page cache.
// Returns false if the file system is in memory, because its pages never leave the cache.
inline bool FlushToDisk(const std::filesystem::path& path) {
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(::fsync(file.get()), 0);
  constexpr long kTmpfs = 0x01021994;
  struct statfs system = {};
  EXPECT_EQ(::fstatfs(file.get(), &system), 0);
  return system.f_type != kTmpfs;
}

}  // namespace sluice::testing
