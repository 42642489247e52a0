// The interface of grammar engines. Another engine can replace xgrammar by implementing these
// classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace sluice {

enum class ConstraintKind {
  kJsonSchema,     // the text is a JSON schema
  kRegex,          // the regex matches the whole answer
  kEbnf,           // GBNF; the first rule is "root"
  kLark,           // Lark; the first rule is "start"
  kStructuralTag,  // JSON that describes free text with constrained parts between tags
};

// Maximum length of white space between parts of JSON, so that an answer cannot continue with white
// space forever. Enough for a line end and an indent.
inline constexpr int kMaxWhitespace = 40;

struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::kJsonSchema;
  std::string text;
  // For JSON. true: allows white space wherever JSON does, up to kMaxWhitespace characters; false:
  // none.
  bool any_whitespace = true;

  bool operator==(const ConstraintSpec&) const = default;
};

// The number of 32-bit words in a mask. A mask has one bit per token, token 0 in the lowest bit of
// the first word; 1 means allowed.
inline constexpr size_t MaskWords(int64_t vocab_size) {
  return static_cast<size_t>((vocab_size + 31) / 32);
}

// The state of one sequence in its constraint. Thread safety: one thread at a time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;

  // Advances by the sequence's next token. Returns false and changes nothing if the constraint
  // forbids it.
  virtual bool Advance(int32_t token) = 0;
  // Fills `mask` (MaskWords) with the tokens that may come next. Returns false and leaves `mask`
  // unspecified if a limit was exceeded. REQUIRES: !is_finished().
  virtual bool FillMask(std::span<uint32_t> mask) = 0;
  // Undoes the last `num_tokens` tokens. REQUIRES: at least that many were accepted.
  virtual void RollBack(int num_tokens) = 0;
  // Returns to the beginning of the answer.
  virtual void Reset() = 0;
  // Whether the constraint is complete: an end token was accepted.
  virtual bool is_finished() const = 0;

  // Stops each later call after `cpu_seconds`, or at the matcher's own limit if that is lower.
  virtual void LimitCalls(double /*cpu_seconds*/) {}
  // Whether a call was stopped. That call and all later ones return false, until Reset.
  virtual bool is_stopped() const { return false; }
  // Processor time that all calls have used so far.
  virtual double cpu_seconds() const { return 0; }
};

// A compiled constraint. Thread safety: immutable.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<TokenMatcher> NewMatcher() const = 0;
  virtual size_t bytes() const = 0;
};

// Compiles constraints for one vocabulary. Thread safety: Compile may be called from any thread.
class ConstraintEngine {
 public:
  virtual ~ConstraintEngine() = default;
  // kInvalidArgument, with the reason, if the constraint is malformed or exceeds WorkLimits.
  virtual Result<std::shared_ptr<const Constraint>> Compile(const ConstraintSpec& spec) const = 0;
};

}  // namespace sluice
