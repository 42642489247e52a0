#include "base/process_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace sluice {
namespace {

constexpr size_t kReserveBytes = size_t{8} << 20;
// Blocks of at least this size are mapped individually. Setting the threshold also turns off
// glibc's default behavior: it raises the threshold with each freed block, up to 32 MiB, which
// would keep such blocks in the heap.
constexpr int kMappedBlock = 256 << 10;
// Limit of malloc's arenas: each reserves 64 MiB of address space and keeps its own free memory.
constexpr int kMostPools = 2;

// Whether PrepareProcessMemory has been called.
std::atomic<bool> is_prepared{false};
std::atomic<void*> reserve{nullptr};

void GiveUpReserve() {
  void* const memory = reserve.exchange(nullptr);
  if (memory == nullptr) throw std::bad_alloc();
  std::free(memory);
}

}  // namespace

void PrepareProcessMemory() {
  mallopt(M_MMAP_THRESHOLD, kMappedBlock);
  mallopt(M_ARENA_MAX, kMostPools);
  is_prepared = true;
  RefillMemoryReserve();
  std::set_new_handler(GiveUpReserve);
}

bool RefillMemoryReserve() {
  if (!is_prepared || reserve.load() != nullptr) return false;
  void* const memory = std::malloc(kReserveBytes);
  void* expected = nullptr;
  if (memory != nullptr && !reserve.compare_exchange_strong(expected, memory)) std::free(memory);
  return true;
}

void ReturnFreeMemory() {
  malloc_trim(0);
}

}  // namespace sluice
