// Finds earlier occurrences of a list's last tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// The last tokens of a growing list, with hash chains over their n-grams. Positions count from the
// list's first token and wrap at 2^32. The constructor allocates all memory: 12 bytes per token.
// Thread safety: one thread at a time.
class TokenIndex {
 public:
  // Keeps the last `capacity` tokens, rounded up to a power of two; n-grams have `gram` tokens.
  TokenIndex(size_t capacity, int gram);

  // Bytes of memory: 12 per stored token.
  static size_t Bytes(size_t capacity);

  void Append(std::span<const int32_t> tokens);
  // Returns the number of tokens appended so far.
  uint32_t size() const { return size_; }
  // Returns the token at a position. REQUIRES: Keeps(position).
  int32_t At(uint32_t position) const { return tokens_[position & mask_]; }
  bool Keeps(uint32_t position) const { return size_ - position - 1 < kept(); }

  // Returns the number of tokens directly before `position` that equal the last tokens of `tail`;
  // at most the length of `tail`.
  int MatchLength(uint32_t position, std::span<const int32_t> tail) const;

  // Calls visit(position) for stored positions that may follow an occurrence of the last `gram`
  // tokens of `tail`, the latest first; MatchLength verifies them. Stops after `most` calls, or
  // when `visit` returns false. REQUIRES: `tail` has at least `gram` tokens.
  template <typename Visit>
  void ForEachCandidate(std::span<const int32_t> tail, int most, const Visit& visit) const {
    uint32_t position = heads_[Bucket(tail.last(gram_))];
    for (int i = 0; i < most && Keeps(position); ++i) {
      if (!visit(position)) return;
      const uint32_t before = previous_[position & mask_];
      if (size_ - before <= size_ - position) return;  // overwritten by a later one
      position = before;
    }
  }

 private:
  uint32_t kept() const { return size_ < mask_ ? size_ : mask_; }
  size_t Bucket(std::span<const int32_t> gram) const;

  const size_t gram_;
  const uint32_t mask_;
  uint32_t size_ = 0;
  std::vector<int32_t> tokens_;  // ring buffer
  // For each position after an n-gram: the previous position in the same hash bucket, or itself if
  // there is none.
  std::vector<uint32_t> previous_;
  std::vector<uint32_t> heads_;  // latest position in each hash bucket
};

}  // namespace sluice
