// Manages this process's memory: configures the allocator, returns free memory to the system, and
// keeps a reserve for failed allocations.
#pragma once

namespace sluice {

// Makes the allocator return large blocks as soon as they are freed, and limits its number of
// arenas. Reserves some memory, which a std::new_handler releases when an allocation fails. The
// large allocation that failed still throws std::bad_alloc. Small allocations of other threads,
// which might not be able to recover from a failure, succeed. Call before threads start.
void PrepareProcessMemory();

// Reserves memory again if the reserve was released and enough is free. Returns true if it had been
// released. Call periodically. Thread safety: any thread.
bool RefillMemoryReserve();

// Returns to the system the free memory that the allocator caches. Takes milliseconds. Thread
// safety: any thread.
void ReturnFreeMemory();

}  // namespace sluice
