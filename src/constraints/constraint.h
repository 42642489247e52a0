// What an answer has to look like: the contract between an engine that knows grammars and the rest
// of the program. A second engine stands in by implementing these classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace sluice {

enum class ConstraintKind {
  kJsonSchema,     // text of a JSON schema
  kRegex,          // the whole answer matches
  kEbnf,           // GBNF; the first rule is "root"
  kLark,           // Lark; the first rule is "start"
  kStructuralTag,  // JSON: free text with constrained parts between tags
};

// White space in a row where a constraint lets JSON have any, so that no answer is nothing else:
// a line's end and an indent.
inline constexpr int kMaxWhitespace = 40;

struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::kJsonSchema;
  std::string text;
  // For JSON: white space wherever JSON allows it, up to kMaxWhitespace characters, else none.
  bool any_whitespace = true;

  bool operator==(const ConstraintSpec&) const = default;
};

// Words of 32 tokens each, token 0 in the lowest bit of the first: 1 where it may be chosen.
inline constexpr size_t MaskWords(int64_t vocab_size) {
  return static_cast<size_t>((vocab_size + 31) / 32);
}

// Where one sequence stands in its constraint. Thread safety: one thread at a time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;

  // Takes the next token of the sequence. False, and unchanged, if the constraint forbids it.
  virtual bool Advance(int32_t token) = 0;
  // Fills `mask` (MaskWords) with the tokens that may follow. False, with `mask` unspecified, if a
  // limit was passed. REQUIRES: !is_finished().
  virtual bool FillMask(std::span<uint32_t> mask) = 0;
  // Takes the last `num_tokens` tokens back. REQUIRES: so many were taken.
  virtual void RollBack(int num_tokens) = 0;
  // Back to the beginning.
  virtual void Reset() = 0;
  // An end token was taken: the constraint says nothing more.
  virtual bool is_finished() const = 0;

  // Stops each of the calls that follow after `cpu_seconds`, or at the matcher's own limit if that
  // is less.
  virtual void LimitCalls(double /*cpu_seconds*/) {}
  // A call was stopped: it and all that follow return false, until Reset.
  virtual bool is_stopped() const { return false; }
  // Processor time of all calls so far.
  virtual double cpu_seconds() const { return 0; }
};

// A compiled constraint. Thread safety: immutable.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<TokenMatcher> NewMatcher() const = 0;
  virtual size_t bytes() const = 0;
};

// Compiles for one vocabulary. Thread safety: Compile may be called from any thread.
class ConstraintEngine {
 public:
  virtual ~ConstraintEngine() = default;
  // kInvalidArgument with the reason: not well formed, or beyond what WorkLimits allow.
  virtual Result<std::shared_ptr<const Constraint>> Compile(const ConstraintSpec& spec) const = 0;
};

}  // namespace sluice
