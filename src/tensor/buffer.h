// Owned, aligned memory for tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace sluice {

// Zeroed memory, aligned to 2 MiB if at least that large (for the operating system's huge pages),
// else to 64 bytes. Allocating does not touch the pages: the first write places each on the
// writer's NUMA node. Ownership: move-only.
class Buffer {
 public:
  // kResourceExhausted if memory is short. `what`: what the memory is for, used in the error
  // message.
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
