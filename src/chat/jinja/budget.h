// What one render may spend, and how its failures travel.
//
// Inside the engine a failing expression unwinds as the exception Failure, as it does in Python
// whose semantics these are; ChatTemplate turns it into a Result, and none leaves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace sluice::jinja {

// Which of Python's exceptions a failure stands for. Some filters catch some of them.
enum class FailureKind {
  kRaised,     // raise_exception: the message is the template author's.
  kUndefined,  // UndefinedError
  kType,       // TypeError
  kValue,      // ValueError, UnicodeError
  kLookup,     // IndexError, KeyError
  kOverflow,   // OverflowError
  kSecurity,   // SecurityError
  kRuntime,    // TemplateRuntimeError, FilterArgumentError, ZeroDivisionError, AssertionError
  kLimit,      // A limit of the render: never caught inside a template.
  kCancelled,  // Nobody waits for the render any more; never caught either.
  kSyntax,     // Only while compiling.
};

struct Failure {
  FailureKind kind;
  std::string message;
  int line = 0;  // Of the innermost statement; 0 while unknown.
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

// Counts what the render running on this thread spends; fails with kLimit when something runs out.
// While a template is compiled there is none, and the functions below do nothing.
//
// Every piece of work whose size a template decides is counted where it is done: each object and
// text when it is made, each item when it is drawn from an iterator, each byte that is compared,
// searched, hashed or converted.
class Budget {
 public:
  // `is_cancelled` may be empty, outlives the budget, and is asked every kStepsBetweenChecks steps.
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

  // Makes a budget the current one of this thread, until destroyed.
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
  // Whether `bytes` could be taken now, without taking them: to be asked before a large value is
  // built.
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
  // A few milliseconds.
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
  int64_t next_check_ = 0;  // Check() is called below so many steps left.
  size_t memory_left_;
  size_t max_string_bytes_;
  int max_depth_;
  const std::function<bool()>& is_cancelled_;
  int depth_ = 0;
};

// Counts `steps` of work: one for a node, an object or an element.
inline void Spend(int64_t steps) {
  if (Budget* budget = Budget::Current()) budget->Spend(steps);
}
// Work on text, by its bytes: copied, compared or hashed; searched; looked at character by
// character. A step of each takes about as long.
inline void SpendCopy(size_t bytes) {
  Spend(static_cast<int64_t>(bytes / 64));
}
inline void SpendSearch(size_t bytes) {
  Spend(static_cast<int64_t>(bytes / 16));
}
inline void SpendCharacters(size_t bytes) {
  Spend(static_cast<int64_t>(bytes / 8));
}
// Fails if `bytes` more may not be held now.
inline void RequireMemory(size_t bytes) {
  if (Budget* budget = Budget::Current()) budget->Require(bytes);
}
// To be called before text of `bytes` is made: counts the work and fails if the text may not be as
// long.
void SpendText(size_t bytes);
// To be called before `bytes` are appended to a text of `size` bytes.
void SpendAppend(size_t size, size_t bytes);

}  // namespace sluice::jinja
