// Limits the total cost of encoding one text, over all steps of a tokenizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sluice {

// Limits the work whose amount a tokenizer.json controls: matches of its patterns, and look-ups in
// its vocabulary and its added tokens. A unit takes 10 to 20 nanoseconds. Once the budget is
// exceeded, nothing more is matched; the creator of the budget checks is_exceeded().
//
// Thread safety: used by the thread that created it.
class EncodeBudget {
 public:
  // For prose and code, published split patterns cost 0.3 to 4 units per byte, and at most 11 if
  // each character is a match. WordPiece costs 270 units per byte for words without a known part.
  explicit EncodeBudget(size_t text_bytes)
      : left_(static_cast<int64_t>(
            std::min(kMaxUnits, kFixedUnits + kUnitsPerByte * static_cast<uint64_t>(text_bytes)))),
        previous_(current_) {
    current_ = this;
  }
  ~EncodeBudget() { current_ = previous_; }
  EncodeBudget(const EncodeBudget&) = delete;
  EncodeBudget& operator=(const EncodeBudget&) = delete;

  // Spends `units`. Returns false once the budget is exceeded. Returns true if the thread has no
  // budget, as while a file is loaded.
  static bool Spend(size_t units) {
    if (current_ == nullptr) return true;
    current_->left_ -= static_cast<int64_t>(units);
    return current_->left_ >= 0;
  }
  // Exceeds the budget immediately, because a step reached its own limit.
  static void Exhaust() {
    if (current_ != nullptr) current_->left_ = -1;
  }
  bool is_exceeded() const { return left_ < 0; }

 private:
  static constexpr uint64_t kFixedUnits = 16'384;
  static constexpr uint64_t kUnitsPerByte = 1024;
  static constexpr uint64_t kMaxUnits = 200'000'000;  // this much work takes two to four seconds

  static thread_local EncodeBudget* current_;
  int64_t left_;
  EncodeBudget* const previous_;
};

inline thread_local EncodeBudget* EncodeBudget::current_ = nullptr;

}  // namespace sluice
