// Counts a sequence's tokens for penalties, in time and space linear in the sequence, not in the
// vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

class TokenCounts {
 public:
  struct Entry {
    int32_t token = 0;
    int32_t in_output = 0;  // number of occurrences
    bool in_prompt = false;
  };

  // Counts the tokens that were appended to `tokens` (prompt, then output) since the last call.
  void Update(std::span<const int32_t> tokens, int64_t num_prompt_tokens);
  // Skips the first `num_tokens` tokens, which are placeholders. REQUIRES: nothing was counted yet.
  void Skip(size_t num_tokens) { num_counted_ = num_tokens; }
  // One entry per distinct token, in order of first appearance.
  std::span<const Entry> entries() const { return entries_; }

 private:
  Entry& Find(int32_t token);
  void Grow();

  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;  // hash table of indices into entries_ (open addressing, size a
                                // power of two); -1: empty
  size_t num_counted_ = 0;
};

}  // namespace sluice
