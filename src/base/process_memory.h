// How this process takes memory from the system, gives it back, and lives on when there is none.
#pragma once

namespace sluice {

// Makes the allocator give large blocks back as soon as they are freed, and keep few pools for its
// threads; sets some memory aside for the time when an allocation fails: the large one that has
// failed still ends in std::bad_alloc, but the small ones of other threads, which could not be
// undone, find memory. Installs a std::new_handler. To be called before threads are started.
void PrepareProcessMemory();

// Sets memory aside again if it was given up and can be had. True if it had been given up. To be
// called now and then. Thread safety: any.
bool RefillMemoryReserve();

// Gives free memory that the allocator keeps back to the system; takes milliseconds. Thread safety:
// any.
void ReturnFreeMemory();

}  // namespace sluice
