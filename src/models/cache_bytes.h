// The content of KV blocks and of sequences' states as bytes, for the tiers of the prefix cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "models/kv_cache.h"

namespace sluice {

enum class CachePiece : int64_t { kBlock, kState };

// Copies pieces between a cache and host memory. A piece is a block or a slot of states. With
// several ranks, a piece consists of all ranks' shares, in rank order.
//
// Read and Write throw std::runtime_error if a device is lost, and GroupError if a rank is lost.
// Thread safety: used by the thread that computes the steps, between two of them.
class CacheBytes {
 public:
  virtual ~CacheBytes() = default;
  // Returns the bytes of a block or of a slot of states; 0 for a slot if sequences keep no states.
  virtual int64_t BytesOf(CachePiece piece) const = 0;
  // `place`: the number of the block or of the slot of states.
  virtual void Read(CachePiece piece, int64_t place, std::byte* bytes) = 0;
  virtual void Write(CachePiece piece, int64_t place, const std::byte* bytes) = 0;
};

// Makes the CacheBytes of one rank's cache. `device`: the device that has the cache; null: the CPU.
// No step in flight may use the cache. Ownership: refers to both. kResourceExhausted if the device
// has no memory for a copy.
Result<std::unique_ptr<CacheBytes>> MakeCacheBytes(const KvCache& cache, Device* device);

}  // namespace sluice
