// Limits the cost of encoding a text, over all steps of a tokenizer together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sluice {

// Bounds the work whose amount a tokenizer.json decides: matches of its patterns, look-ups in its
// vocabulary and of its added tokens. A unit takes 10 to 20 nanoseconds. Once the budget is
// exceeded, nothing more is matched; its creator checks is_exceeded().
//
// Thread safety: used by the thread that made it.
class EncodeBudget {
 public:
  // Published split patterns take 0.3 to 4 units per byte of prose and code, at most 11 if each
  // character is a match; WordPiece takes 270 for words without a known part.
  explicit EncodeBudget(size_t text_bytes)
      : left_(static_cast<int64_t>(
            std::min(kMaxUnits, kFixedUnits + kUnitsPerByte * static_cast<uint64_t>(text_bytes)))),
        previous_(current_) {
    current_ = this;
  }
  ~EncodeBudget() { current_ = previous_; }
  EncodeBudget(const EncodeBudget&) = delete;
  EncodeBudget& operator=(const EncodeBudget&) = delete;

  // Returns false once more has been spent than available; true if no budget exists, as while a
  // file is loaded.
  static bool Spend(size_t units) {
    if (current_ == nullptr) return true;
    current_->left_ -= static_cast<int64_t>(units);
    return current_->left_ >= 0;
  }
  // Called if a step has reached its own limit.
  static void Exhaust() {
    if (current_ != nullptr) current_->left_ = -1;
  }
  bool is_exceeded() const { return left_ < 0; }

 private:
  static constexpr uint64_t kFixedUnits = 16'384;
  static constexpr uint64_t kUnitsPerByte = 1024;
  static constexpr uint64_t kMaxUnits = 200'000'000;  // two to four seconds

  static thread_local EncodeBudget* current_;
  int64_t left_;
  EncodeBudget* const previous_;
};

inline thread_local EncodeBudget* EncodeBudget::current_ = nullptr;

}  // namespace sluice
