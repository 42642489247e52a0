// How this process takes memory from the system, returns it, and survives failed allocations.
#pragma once

namespace sluice {

// Makes the allocator return large blocks as soon as they are freed, and limits its number of
// arenas. Sets some memory aside, to be released when an allocation fails: the large allocation
// that failed still ends in std::bad_alloc, but small allocations of other threads, which might be
// unable to recover, succeed. Installs a std::new_handler. Call before threads start.
void PrepareProcessMemory();

// Sets memory aside again if it was released and is available. Returns true if it had been
// released. Call periodically. Thread safety: any.
bool RefillMemoryReserve();

// Returns free memory that the allocator caches to the system; takes milliseconds. Thread safety:
// any.
void ReturnFreeMemory();

}  // namespace sluice
