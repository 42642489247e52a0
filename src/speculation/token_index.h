// Where the last tokens of a list have stood before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// The last tokens of a growing list, with hash chains over their n-grams, as compressors find
// repetitions. Positions count from the list's first token and wrap at 2^32. All memory is taken by
// the constructor: 12 bytes a token. Thread safety: one thread at a time.
class TokenIndex {
 public:
  // Keeps the last `capacity` tokens, rounded up to a power of two; n-grams have `gram` tokens.
  TokenIndex(size_t capacity, int gram);

  // 12 bytes for each token that is kept.
  static size_t Bytes(size_t capacity);

  void Append(std::span<const int32_t> tokens);
  // Tokens that were appended.
  uint32_t size() const { return size_; }
  // REQUIRES: the token is kept.
  int32_t At(uint32_t position) const { return tokens_[position & mask_]; }
  bool Keeps(uint32_t position) const { return size_ - position - 1 < kept(); }

  // How many tokens before `position` are equal to the last ones of `tail`, up to all of it.
  int MatchLength(uint32_t position, std::span<const int32_t> tail) const;

  // Calls visit(position) for kept positions that may stand after an occurrence of the last n
  // tokens of `tail`, the latest first: whether they do, MatchLength tells. No more than `most`,
  // and until it returns false. REQUIRES: `tail` has n tokens.
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
  std::vector<int32_t> tokens_;  // rings
  // For the position after an n-gram: the one before it in the same bucket; itself: none.
  std::vector<uint32_t> previous_;
  std::vector<uint32_t> heads_;  // by bucket, the latest
};

}  // namespace sluice
