#include "models/cache_bytes.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tensor/element_type.h"

namespace sluice {
namespace {

// A part of a block or of a slot of states. `first`: the part in block or slot 0; the parts of all
// blocks or slots are contiguous.
struct Part {
  std::byte* first = nullptr;
  int64_t bytes = 0;

  std::byte* At(int64_t place) const { return first + place * bytes; }
};

std::vector<Part> PartsOfBlock(const KvCache& cache) {
  std::vector<Part> parts;
  const auto add = [&](void* first, int64_t bytes) {
    if (bytes > 0) parts.push_back({static_cast<std::byte*>(first), bytes});
  };
  for (const kernels::KvCacheView& slot : cache.slots()) {
    const int bits = BitsPerElement(slot.layout.type);
    add(slot.k, slot.layout.BlockElements() * bits / 8);
    add(slot.v, slot.layout.ValueBlockElements() * bits / 8);
  }
  return parts;
}

std::vector<Part> PartsOfState(const KvCache& cache) {
  const StateCache& states = cache.states();
  if (states.num_slots() == 0 || states.slot_bytes() == 0) return {};
  return {{states.slot(0), states.slot_bytes()}};
}

int64_t BytesOfParts(const std::vector<Part>& parts) {
  int64_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  return bytes;
}

class HostCacheBytes final : public CacheBytes {
 public:
  explicit HostCacheBytes(const KvCache& cache)
      : blocks_(PartsOfBlock(cache)), states_(PartsOfState(cache)) {}

  int64_t BytesOf(CachePiece piece) const override { return BytesOfParts(PartsOf(piece)); }
  void Read(CachePiece piece, int64_t place, std::byte* bytes) override {
    for (const Part& part : PartsOf(piece)) {
      std::memcpy(bytes, part.At(place), static_cast<size_t>(part.bytes));
      bytes += part.bytes;
    }
  }
  void Write(CachePiece piece, int64_t place, const std::byte* bytes) override {
    for (const Part& part : PartsOf(piece)) {
      std::memcpy(part.At(place), bytes, static_cast<size_t>(part.bytes));
      bytes += part.bytes;
    }
  }

 private:
  const std::vector<Part>& PartsOf(CachePiece piece) const {
    return piece == CachePiece::kBlock ? blocks_ : states_;
  }

  const std::vector<Part> blocks_, states_;
};

class DeviceCacheBytes final : public CacheBytes {
 public:
  static Result<std::unique_ptr<CacheBytes>> Make(const KvCache& cache, Device& device) {
    std::unique_ptr<DeviceCacheBytes> made(new DeviceCacheBytes(cache));
    ASSIGN_OR_RETURN(made->stream_, device.CreateStream());
    const int64_t bytes = std::max(BytesOfParts(made->blocks_), BytesOfParts(made->states_));
    ASSIGN_OR_RETURN(made->page_locked_,
                     device.AllocatePinned(bytes, "a block on its way from and to the device"));
    return made;
  }

  int64_t BytesOf(CachePiece piece) const override { return BytesOfParts(PartsOf(piece)); }
  void Read(CachePiece piece, int64_t place, std::byte* bytes) override {
    auto* to = page_locked_.As<std::byte>();
    for (const Part& part : PartsOf(piece)) {
      stream_->CopyToHost(to, part.At(place), part.bytes);
      to += part.bytes;
    }
    Await();
    std::memcpy(bytes, page_locked_.data(), static_cast<size_t>(BytesOf(piece)));
  }
  void Write(CachePiece piece, int64_t place, const std::byte* bytes) override {
    std::memcpy(page_locked_.data(), bytes, static_cast<size_t>(BytesOf(piece)));
    const auto* from = page_locked_.As<std::byte>();
    for (const Part& part : PartsOf(piece)) {
      stream_->CopyToDevice(part.At(place), from, part.bytes);
      from += part.bytes;
    }
    Await();
  }

 private:
  explicit DeviceCacheBytes(const KvCache& cache)
      : blocks_(PartsOfBlock(cache)), states_(PartsOfState(cache)) {}

  const std::vector<Part>& PartsOf(CachePiece piece) const {
    return piece == CachePiece::kBlock ? blocks_ : states_;
  }
  void Await() {
    if (const Status copied = stream_->Synchronize(); !copied)
      throw std::runtime_error(copied.error().message);
  }

  const std::vector<Part> blocks_, states_;
  DeviceBuffer page_locked_;
  std::unique_ptr<DeviceStream> stream_;
};

}  // namespace

Result<std::unique_ptr<CacheBytes>> MakeCacheBytes(const KvCache& cache, Device* device) {
  if (device != nullptr) return DeviceCacheBytes::Make(cache, *device);
  return std::make_unique<HostCacheBytes>(cache);
}

}  // namespace sluice
