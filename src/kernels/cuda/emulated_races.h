// Finds data races of emulated kernels with ThreadSanitizer: each CUDA thread, and each group of
// asynchronous copies of a thread, is a fiber of ThreadSanitizer. These wrappers do nothing in
// builds without ThreadSanitizer.
//
// As in CUDA, only the following order the accesses of two threads:
// - the begin and the end of a launch;
// - barriers of a block, and __syncwarp();
// - the end of an asynchronous copy, for the thread that waited for it;
// - between blocks: a fence, then an atomic in each block, then a fence.
// Shuffles, votes and tensor core products exchange registers; they do not order memory.
#pragma once

#ifdef SLUICE_EMULATED_RACES
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, long bytes);
void __tsan_write_range(void* address, long bytes);
}
#endif

namespace sluice::emulator::races {

#ifdef SLUICE_EMULATED_RACES
constexpr bool kCanFind = true;
inline void* CurrentFiber() {
  return __tsan_get_current_fiber();
}
inline void* CreateFiber() {
  return __tsan_create_fiber(0);
}
inline void DestroyFiber(void* fiber) {
  __tsan_destroy_fiber(fiber);
}
// Accesses after this call count as those of `fiber`. The switch itself orders nothing.
inline void SwitchTo(void* fiber) {
  constexpr unsigned kOrdersNothing = 1;
  __tsan_switch_to_fiber(fiber, kOrdersNothing);
}
// Makes the fiber's later accesses happen after the accesses that preceded an earlier Release of
// the address.
inline void Acquire(const void* address) {
  __tsan_acquire(const_cast<void*>(address));
}
inline void Release(const void* address) {
  __tsan_release(const_cast<void*>(address));
}
inline void Read(const void* address, long bytes) {
  __tsan_read_range(const_cast<void*>(address), bytes);
}
inline void Write(void* address, long bytes) {
  __tsan_write_range(address, bytes);
}
#else
constexpr bool kCanFind = false;
inline void* CurrentFiber() {
  return nullptr;
}
inline void* CreateFiber() {
  return nullptr;
}
inline void DestroyFiber(void* /*fiber*/) {}
inline void SwitchTo(void* /*fiber*/) {}
inline void Acquire(const void* /*address*/) {}
inline void Release(const void* /*address*/) {}
inline void Read(const void* /*address*/, long /*bytes*/) {}
inline void Write(void* /*address*/, long /*bytes*/) {}
#endif

}  // namespace sluice::emulator::races
