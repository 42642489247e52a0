// The part of a pass through a program that is the same on the CPU and on devices: which operators
// run, and for which rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "models/program/program.h"

namespace sluice::program {

// `Derived` is the executor's class. It has RunAt(int32_t index), which runs one operator.
template <typename Derived>
class Walk {
 protected:
  // Runs the operators [begin, end), without those that SkipUnless skips.
  void RunOps(int32_t begin, int32_t end) {
    for (int32_t index = begin; index < end;) {
      const Op& op = program_.ops[static_cast<size_t>(index)];
      if (const auto* const skip = std::get_if<SkipUnless>(&op)) {
        index = GoesOn(skip->condition) ? index + 1 : skip->to;
      } else if (const auto* const parts = std::get_if<Parts>(&op)) {
        RunParts(index + 1, *parts);
        index += 1 + parts->count;
      } else {
        static_cast<Derived*>(this)->RunAt(index);
        ++index;
      }
    }
  }

  // Returns the number of the buffer's rows that are computed now. Row 0 is the first row of the
  // current part.
  int64_t CountOf(BufferId buffer) const {
    const int64_t rows = is_part_ ? part_rows_ : rows_;
    const bool has_pairs = program_.buffers[static_cast<size_t>(buffer)].extent == Extent::kPairs;
    return has_pairs ? rows * pairs_each_ : rows;
  }

  const Program& program_;
  int64_t rows_;       // number of rows that are still computed
  int64_t first_ = 0;  // first row of the current part

 private:
  friend Derived;

  // `rows`: number of rows of the step. `wants_rows`: whether the step has results. `takes_target`:
  // for a drafting head, whether the step's rows come from the target.
  Walk(const Program& program, int64_t rows, bool wants_rows, bool takes_target)
      : program_(program), rows_(rows), wants_rows_(wants_rows), takes_target_(takes_target) {}

  // Returns whether the condition is true, so that no operator is skipped. If the condition is
  // false because there are no rows, sets the number of rows to 0.
  bool GoesOn(SkipUnless::Condition condition) {
    using Condition = SkipUnless::Condition;
    if (condition == Condition::kTakesTarget) return takes_target_;
    if (condition == Condition::kTakesOwn) return !takes_target_;
    const bool has_rows = condition == Condition::kHasRows ? rows_ > 0 : wants_rows_;
    if (!has_rows) rows_ = 0;
    return has_rows;
  }

  void RunParts(int32_t begin, const Parts& parts) {
    is_part_ = true;
    pairs_each_ = parts.pairs_each;
    for (first_ = 0; first_ < rows_; first_ += parts.rows) {
      part_rows_ = std::min(parts.rows, rows_ - first_);
      for (int32_t index = begin; index < begin + parts.count; ++index)
        static_cast<Derived*>(this)->RunAt(index);
    }
    is_part_ = false;
    first_ = 0;
  }

  const bool wants_rows_;
  const bool takes_target_;
  bool is_part_ = false;
  int64_t part_rows_ = 0, pairs_each_ = 1;
};

}  // namespace sluice::program
