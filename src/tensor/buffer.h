// Memory for tensors: owning, aligned, and accounted for by the memory plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace sluice {

// An owning block of zeroed memory, aligned to 2 MiB where it is that large (so that the kernel can
// use huge pages) and to 64 bytes otherwise. Pages are touched first by whoever writes them first.
// Ownership: move-only.
class Buffer {
 public:
  // kResourceExhausted when the machine refuses; `what` names the use in the message.
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
