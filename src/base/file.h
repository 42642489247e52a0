// Reads whole files and maps files into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace sluice {

// Reads the whole file. kNotFound if it does not exist; kInvalidData if it is larger than
// `max_bytes`, is not a regular file, or is a broken link.
Result<std::string> ReadFile(const std::filesystem::path& path,
                             uint64_t max_bytes = uint64_t{1} << 30);

// A read-only mapping of a whole file. Ownership: move-only; unmaps when destroyed, which
// invalidates views into bytes(). Thread safety: bytes() may be read from any thread. If another
// process truncates the file while it is mapped, reading the lost part raises SIGBUS.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Removes the pages of [offset, offset + size) from this process's memory. Later reads load them
  // again.
  void Release(size_t offset, size_t size) const;
  // Turns off read-ahead: without this call, reading a page makes the kernel read some megabytes
  // after it. For files that are read only in parts. Fetch still reads its whole range.
  void ReadSparsely() const;
  // Makes the kernel start reading [offset, offset + size) from the disk. Does not wait for the
  // read.
  void Fetch(size_t offset, size_t size) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
