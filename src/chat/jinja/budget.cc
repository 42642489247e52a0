#include "chat/jinja/budget.h"

namespace sluice::jinja {

thread_local Budget* Budget::current_ = nullptr;

void Budget::Check() {
  if (steps_left_ < 0) Fail(FailureKind::kLimit, "the chat template takes too many steps");
  if (is_cancelled_ && is_cancelled_())
    Fail(FailureKind::kCancelled, "the rendering of the chat template was cancelled");
  PlanNextCheck();
}
void Budget::OutOfMemory() {
  Fail(FailureKind::kLimit, "the chat template takes too much memory");
}
void Budget::TooDeep() {
  Fail(FailureKind::kLimit,
       "the chat template nests or recurses too deeply (maximum recursion depth exceeded)");
}

void SpendText(size_t bytes) {
  SpendAppend(0, bytes);
}

void SpendAppend(size_t size, size_t bytes) {
  Budget* budget = Budget::Current();
  if (budget == nullptr) return;
  if (bytes > budget->max_string_bytes() || size > budget->max_string_bytes() - bytes) {
    Fail(FailureKind::kLimit, "the chat template makes a text of more than " +
                                  std::to_string(budget->max_string_bytes()) + " bytes");
  }
  budget->Require(size + bytes);
  budget->Spend(static_cast<int64_t>(bytes / 64));
}

}  // namespace sluice::jinja
