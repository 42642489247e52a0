#include "models/state_cache.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/integer.h"

namespace sluice {
namespace {

constexpr int64_t kLineNumbers = 16;  // F32 elements per cache line

}  // namespace

StateLayout StateLayout::For(const DecoderSpec& share) {
  StateLayout layout;
  const auto take = [&](int64_t numbers) {
    return std::exchange(layout.slot_numbers_,
                         RoundUp(layout.slot_numbers_ + numbers, kLineNumbers));
  };
  for (const LayerSpec& layer : share.layers) {
    Place& place = layout.places_.emplace_back();
    if (layer.attention.latent && layer.attention.latent->makes_entries())
      place.tail = take(layer.attention.latent->StateNumbers());
    if (!layer.mixer) continue;
    place.tail = take(layer.mixer->tail_numbers());
    place.matrix = take(layer.mixer->matrix_numbers());
  }
  return layout;
}

Result<StateCache> StateCache::Allocate(const StateLayout& layout, int64_t num_slots) {
  StateCache cache;
  cache.layout_ = layout;
  cache.num_slots_ = num_slots;
  if (layout.slot_bytes() == 0) return cache;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(layout.slot_bytes(), num_slots, &bytes)) {
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format("the size of the states of {} sequences, {} bytes each, overflows 64 bits",
                    num_slots, layout.slot_bytes()));
  }
  ASSIGN_OR_RETURN(cache.memory_,
                   Buffer::Allocate(static_cast<size_t>(bytes), "the states of sequences"));
  return cache;
}

StateCache StateCache::Wrap(const StateLayout& layout, int64_t num_slots, void* memory) {
  StateCache cache;
  cache.layout_ = layout;
  cache.num_slots_ = num_slots;
  cache.outside_ = memory;
  return cache;
}

void StateCache::Clear(int32_t slot) const {
  std::fill_n(SlotAt(slot), layout_.slot_numbers_, 0.0f);
}

void StateCache::Copy(int32_t from, int32_t to) const {
  if (from != to) std::copy_n(SlotAt(from), layout_.slot_numbers_, SlotAt(to));
}

}  // namespace sluice
