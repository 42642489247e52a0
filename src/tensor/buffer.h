// Owned, aligned memory for tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace sluice {

// A block of zeroed memory, aligned to 2 MiB if at least that large (so that the operating system
// can use huge pages), else to 64 bytes. Allocation does not touch the pages: the first write
// places them on a NUMA node. Ownership: move-only.
class Buffer {
 public:
  // kResourceExhausted if there is not enough memory; `what`: the memory's use, for the message.
  static Result<Buffer> Allocate(size_t size_bytes, const char* what);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_; }
  template <typename T>
  std::span<T> As() const {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
