#include "speculation/token_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace sluice {
namespace {

uint32_t RingSize(size_t capacity) {
  constexpr size_t kSmallest = 64, kLargest = size_t{1} << 30;
  return static_cast<uint32_t>(std::bit_ceil(std::clamp(capacity, kSmallest, kLargest)));
}

}  // namespace

TokenIndex::TokenIndex(size_t capacity, int gram)
    : gram_(static_cast<size_t>(gram)),
      mask_(RingSize(capacity) - 1),
      tokens_(mask_ + size_t{1}),
      previous_(mask_ + size_t{1}),
      heads_(mask_ + size_t{1}) {
  CHECK_GT(gram, 0);
  CHECK_LT(gram_, size_t{mask_});
}

size_t TokenIndex::Bytes(size_t capacity) {
  return size_t{RingSize(capacity)} * (sizeof(int32_t) + 2 * sizeof(uint32_t));
}

size_t TokenIndex::Bucket(std::span<const int32_t> gram) const {
  uint64_t hash = 0;
  for (const int32_t token : gram)
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(hash >> 32) & mask_;
}

// An n-gram is indexed only together with the token after it, so a token exists at every indexed
// position.
void TokenIndex::Append(std::span<const int32_t> tokens) {
  int32_t gram[128];
  CHECK_LE(gram_, std::size(gram));
  for (const int32_t token : tokens) {
    tokens_[size_ & mask_] = token;
    previous_[size_ & mask_] = size_;
    if (size_ >= gram_) {
      for (size_t i = 0; i < gram_; ++i) gram[i] = At(size_ - static_cast<uint32_t>(gram_ - i));
      uint32_t& head = heads_[Bucket({gram, gram_})];
      previous_[size_ & mask_] = head;
      head = size_;
    }
    ++size_;
  }
}

int TokenIndex::MatchLength(uint32_t position, std::span<const int32_t> tail) const {
  uint32_t length = 0;
  while (length < tail.size() && Keeps(position - length - 1) &&
         At(position - length - 1) == tail[tail.size() - 1 - length])
    ++length;
  return static_cast<int>(length);
}

}  // namespace sluice
