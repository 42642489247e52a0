// Maps whole pieces to ids. Every piece is looked up in this table first, which usually touches a
// single cache line.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace sluice {

// Up to 15 bytes and their length in two 64-bit words, so that keys are compared with two
// instructions.
struct PieceKey {
  static constexpr size_t kMaxBytes = 15;

  uint64_t low = 0;
  uint64_t high = 0;

  // `readable`: number of readable bytes from `data` on. REQUIRES: size <= kMaxBytes.
  static PieceKey Of(const char* data, size_t size, size_t readable) {
    PieceKey key;
    if (readable >= 16) {
      std::memcpy(&key.low, data, 8);
      std::memcpy(&key.high, data + 8, 8);
      if (size < 8) {
        key.low &= (uint64_t{1} << (size * 8)) - 1;
        key.high = 0;
      } else {
        key.high &= (uint64_t{1} << ((size - 8) * 8)) - 1;
      }
    } else {
      char padded[16] = {};
      std::memcpy(padded, data, size);
      std::memcpy(&key.low, padded, 8);
      std::memcpy(&key.high, padded + 8, 8);
    }
    key.high |= static_cast<uint64_t>(size) << 56;
    return key;
  }
  uint64_t Hash() const {
    const uint64_t mixed =
        (low ^ 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93 + high * 0xA0761D6478BD642F;
    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 >> 16;
  }
  friend bool operator==(const PieceKey& a, const PieceKey& b) {
    return a.low == b.low && a.high == b.high;
  }
};

// Maps pieces of at most 15 bytes to ids. Thread safety: several threads may call const methods at
// the same time.
class PieceTable {
 public:
  static constexpr int32_t kNone = -1;

  void Reserve(size_t pieces) {
    size_t slots = 16;
    while (slots < pieces * 2) slots *= 2;
    slots_.assign(slots, {});
  }
  // REQUIRES: Reserve was called with at least this many keys; the key is not in the table.
  void Add(const PieceKey& key, int32_t id) {
    size_t slot = key.Hash() & (slots_.size() - 1);
    while (slots_[slot].id != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {key, id};
  }
  int32_t Find(const PieceKey& key) const {
    size_t slot = key.Hash() & (slots_.size() - 1);
    while (slots_[slot].id != kNone) {
      if (slots_[slot].key == key) return slots_[slot].id;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return kNone;
  }

 private:
  struct Slot {
    PieceKey key;
    int32_t id = kNone;
  };

  std::vector<Slot> slots_ = std::vector<Slot>(16);
};

}  // namespace sluice
