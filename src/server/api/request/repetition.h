// Detects repetition in a generated sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace sluice {

// Ends a sequence when its last tokens are a pattern of `min_size` to `max_size` tokens, repeated
// `min_count` times.
struct RepetitionRule {
  int64_t max_size = 0;  // 0: off
  int64_t min_size = 0;
  int64_t min_count = 0;
};

// Examines the tokens of one sequence. Memory: about 2 * max_size * min_count tokens. Thread
// safety: one thread at a time.
class RepetitionWatch {
 public:
  explicit RepetitionWatch(RepetitionRule rule) : rule_(rule) {}
  // Returns null for a rule that is off.
  static std::unique_ptr<RepetitionWatch> Make(RepetitionRule rule) {
    return rule.max_size > 0 ? std::make_unique<RepetitionWatch>(rule) : nullptr;
  }

  // Appends `token`. Returns true if this completes `min_count` repetitions.
  bool Push(int32_t token);

 private:
  RepetitionRule rule_;
  std::vector<int32_t> tokens_;
};

}  // namespace sluice
