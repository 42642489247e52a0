// Detects that a sequence repeats itself.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// A sequence ends when its last tokens are one pattern of `min_size` to `max_size` tokens,
// `min_count` times over.
struct RepetitionRule {
  int64_t max_size = 0;  // 0: off
  int64_t min_size = 0;
  int64_t min_count = 0;
};

// Takes the tokens of one sequence. Thread safety: one thread at a time. Memory: twice the longest
// stretch that the rule looks at.
class RepetitionWatch {
 public:
  explicit RepetitionWatch(RepetitionRule rule) : rule_(rule) {}

  // Whether `token` completes a pattern that has been repeated often enough.
  bool Push(int32_t token);

 private:
  RepetitionRule rule_;
  std::vector<int32_t> tokens_;
};

}  // namespace sluice
