// Allocator for Asio operations that wait for a long time. Internal to this folder.
#pragma once

#include <cstddef>
#include <memory>

namespace sluice {

// Allocates exactly the requested size on the heap. Asio's own allocator reuses the memory of
// finished operations, which may be larger, and an idle connection may wait for years.
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
