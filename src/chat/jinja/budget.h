// Limits the resources of one render, and defines the exception for its failures.
//
// Inside the interpreter, a failing expression throws Failure where Python would raise an
// exception. ChatTemplate converts it to a Result, so no exception leaves ChatTemplate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace sluice::jinja {

// The Python exception that a failure represents. Filters catch some of these exceptions.
enum class FailureKind {
  kRaised,     // raise_exception was called; the message is the template author's.
  kUndefined,  // UndefinedError
  kType,       // TypeError
  kValue,      // ValueError, UnicodeError
  kLookup,     // IndexError, KeyError
  kOverflow,   // OverflowError
  kSecurity,   // SecurityError
  kRuntime,    // TemplateRuntimeError, FilterArgumentError, ZeroDivisionError, AssertionError
  kLimit,      // A limit of the render was reached; templates cannot catch this.
  kCancelled,  // The client disconnected; templates cannot catch this.
  kSyntax,     // The template is invalid; only thrown while compiling.
};

struct Failure {
  FailureKind kind;
  std::string message;
  int line = 0;  // Line of the innermost statement; 0 while unknown.
};

[[noreturn]] inline void Fail(FailureKind kind, std::string message) {
  throw Failure{kind, std::move(message)};
}
[[noreturn]] inline void FailType(std::string message) {
  Fail(FailureKind::kType, std::move(message));
}
[[noreturn]] inline void FailValue(std::string message) {
  Fail(FailureKind::kValue, std::move(message));
}

// Counts the resources of the render that this thread is running, and fails with kLimit when one
// runs out. While a template is compiled there is no budget, and the functions below do nothing.
//
// All work whose amount a template controls is counted where it is done: each object and text when
// it is created, each item when an iterator yields it, each byte that is compared, searched, hashed
// or converted.
class Budget {
 public:
  // `is_cancelled` may be empty; it must outlive the budget and is called every kStepsBetweenChecks
  // steps.
  Budget(int64_t max_steps, size_t max_memory_bytes, size_t max_string_bytes, int max_depth,
         const std::function<bool()>& is_cancelled)
      : steps_left_(max_steps),
        memory_left_(max_memory_bytes),
        max_string_bytes_(max_string_bytes),
        max_depth_(max_depth),
        is_cancelled_(is_cancelled) {
    PlanNextCheck();
  }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  static Budget* Current() { return current_; }

  // During its lifetime, the given budget is this thread's current budget.
  class Scope {
   public:
    explicit Scope(Budget* budget) : previous_(current_) { current_ = budget; }
    ~Scope() { current_ = previous_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Budget* previous_;
  };

  void Spend(int64_t steps) {
    steps_left_ -= steps;
    if (steps_left_ < next_check_) [[unlikely]]
      Check();
  }
  void Take(size_t bytes) {
    if (bytes > memory_left_) [[unlikely]]
      OutOfMemory();
    memory_left_ -= bytes;
  }
  void GiveBack(size_t bytes) { memory_left_ += bytes; }
  // Fails if fewer than `bytes` are left, but does not reserve them. Call it before building a
  // large value.
  void Require(size_t bytes) const {
    if (bytes > memory_left_) [[unlikely]]
      OutOfMemory();
  }
  size_t max_string_bytes() const { return max_string_bytes_; }

  // One level of nested evaluation.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      if (++budget_.depth_ > budget_.max_depth_) [[unlikely]] {
        --budget_.depth_;
        TooDeep();
      }
    }
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  // This number of steps takes a few milliseconds.
  static constexpr int64_t kStepsBetweenChecks = int64_t{1} << 16;

  void Check();
  void PlanNextCheck() {
    next_check_ =
        is_cancelled_ && steps_left_ > kStepsBetweenChecks ? steps_left_ - kStepsBetweenChecks : 0;
  }
  [[noreturn]] static void OutOfMemory();
  [[noreturn]] static void TooDeep();

  static thread_local Budget* current_;
  int64_t steps_left_;
  int64_t next_check_ = 0;  // Check() is called when fewer steps than this number are left.
  size_t memory_left_;
  size_t max_string_bytes_;
  int max_depth_;
  const std::function<bool()>& is_cancelled_;
  int depth_ = 0;
};

// Spends `steps` steps: one for each node, object or element.
inline void Spend(int64_t steps) {
  if (Budget* budget = Budget::Current()) budget->Spend(steps);
}
// These functions spend steps for work on `bytes` bytes of text: copying, comparing or hashing it;
// searching it; reading it character by character. A step takes about the same time in each of
// them.
inline void SpendCopy(size_t bytes) {
  Spend(static_cast<int64_t>(bytes / 64));
}
inline void SpendSearch(size_t bytes) {
  Spend(static_cast<int64_t>(bytes / 16));
}
inline void SpendCharacters(size_t bytes) {
  Spend(static_cast<int64_t>(bytes / 8));
}
// Fails if fewer than `bytes` of memory are left.
inline void RequireMemory(size_t bytes) {
  if (Budget* budget = Budget::Current()) budget->Require(bytes);
}
// Call before creating a text of `bytes`: counts the work, and fails if the text would be too long.
void SpendText(size_t bytes);
// Call before appending `bytes` to a text of `size` bytes.
void SpendAppend(size_t size, size_t bytes);

}  // namespace sluice::jinja
