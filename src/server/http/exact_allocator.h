// Memory of operations of Asio that wait for long. Internal to this folder.
#pragma once

#include <cstddef>
#include <memory>

namespace sluice {

// Takes what it gives from the heap, in the size that is asked for. Asio's own allocator hands out
// what operations have left, also larger ones, and an idle connection waits for years.
template <typename T>
struct ExactAllocator {
  using value_type = T;
  ExactAllocator() = default;
  template <typename U>
  ExactAllocator(const ExactAllocator<U>& /*other*/) {}  // NOLINT(google-explicit-constructor)
  T* allocate(size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* memory, size_t count) { std::allocator<T>().deallocate(memory, count); }
  friend bool operator==(ExactAllocator, ExactAllocator) { return true; }
};

}  // namespace sluice
