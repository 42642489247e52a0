// Loads and stores that are visible to other devices and the host. Extends device_code.h for
// kernels that exchange data.
#pragma once

#include "kernels/cuda/device_code.h"

#if !defined(__CUDACC__) && !defined(__HIP__)
#include "device/emulated_wait.h"
#endif

namespace sluice::SLUICE_DEVICE_NAMESPACE {

#if defined(__CUDACC__) && !defined(__HIP__)

// Reads a word that another device or the host writes. Everything stored before that word is
// visible to this thread afterwards.
__device__ __forceinline__ uint32_t LoadFromPeer(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];\n" : "=r"(value) : "l"(word) : "memory");
  return value;
}
// Reads a word that other blocks of this device may write at the same time. Does not order other
// accesses.
__device__ __forceinline__ uint32_t LoadShared(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];\n" : "=r"(value) : "l"(word) : "memory");
  return value;
}
// Stores a word that another device reads with LoadFromPeer, or that a block reads with LoadShared.
__device__ __forceinline__ void StoreForPeer(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;\n" ::"l"(word), "r"(value) : "memory");
}
// __threadfence() for all devices and the host.
__device__ __forceinline__ void FenceForPeers() {
  asm volatile("fence.acq_rel.sys;\n" ::: "memory");
}
// Called between two reads of a word; `look` counts the reads.
__device__ __forceinline__ void PauseForPeer(unsigned /*look*/) {}
constexpr unsigned kLooksBeforeStop = 1024;  // reading the host's memory takes microseconds

#elif defined(__HIP__)

__device__ __forceinline__ uint32_t LoadFromPeer(const uint32_t* word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
__device__ __forceinline__ uint32_t LoadShared(const uint32_t* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
__device__ __forceinline__ void StoreForPeer(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
__device__ __forceinline__ void FenceForPeers() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}
__device__ __forceinline__ void PauseForPeer(unsigned /*look*/) {}
constexpr unsigned kLooksBeforeStop = 1024;

#else  // emulated

inline uint32_t LoadFromPeer(const uint32_t* word) {
  const ::sluice::emulator::Atomic atomic(word, sizeof(*word));
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline uint32_t LoadShared(const uint32_t* word) {
  return LoadFromPeer(word);
}
inline void StoreForPeer(uint32_t* word, uint32_t value) {
  ::sluice::emulator::Fence();
  const ::sluice::emulator::Atomic atomic(word, sizeof(*word));
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
inline void FenceForPeers() {
  ::sluice::emulator::Fence();
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
inline void PauseForPeer(unsigned look) {
  ::sluice::emulated_wait::Pause(look);
}
constexpr unsigned kLooksBeforeStop = 8;

#endif

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
