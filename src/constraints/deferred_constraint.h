// A constraint that applies after a model's thought. A thought comes first only where the prompt
// has left one open, or where the answer begins with a mark that opens one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "constraints/constraint.h"

namespace sluice {

// How thoughts are marked in the text.
struct ThoughtMarks {
  std::vector<std::string> begin;  // an answer that begins with one begins with a thought
  std::vector<std::string> end;    // not empty; the constraint begins with the next token
  // Not "": marks of `end` count only after this text, and the mark of `begin` may be its start.
  std::string before_end = {};
  // Where a thought is a row of messages: a call may end the answer only in the text of one whose
  // header names a tool. Without `text`: anywhere.
  struct Messages {
    std::vector<std::string> begin, end;
    std::string text;       // ends the header
    std::string recipient;  // in the header of a call
  };
  Messages messages = {};
};

// The marks in the tokens of a vocabulary. Immutable.
class ThoughtTokens {
 public:
  using BytesOf = std::function<std::string(int32_t)>;

  // `bytes_of`: what a token adds to the text, for ids below `num_tokens`; kept. `end_tokens` end
  // an answer; those of `call_ends` may do so inside a thought, too, where `marks` let a call end.
  ThoughtTokens(ThoughtMarks marks, int32_t num_tokens, BytesOf bytes_of,
                std::vector<int32_t> end_tokens, std::vector<int32_t> call_ends);

  const ThoughtMarks& marks() const { return marks_; }
  std::string BytesOfToken(int32_t token) const { return bytes_of_(token); }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  size_t longest_message_mark() const {
    return longest_message_mark_;
  }  // of ThoughtMarks::messages
  bool EndsAnswer(int32_t token) const;
  bool EndsCall(int32_t token) const;

  // Adds the tokens to `mask` that go on with a mark of `begin` of which `begun` has been written.
  void AllowBegin(const std::string& begun, std::span<uint32_t> mask) const;
  // Takes the tokens out of `mask` that would write more than the mark that they end, after `tail`.
  void ForbidOverrun(const std::string& tail, std::span<uint32_t> mask) const;
  // Takes the tokens that end an answer out of `mask`; `calls`: those of `call_ends` stay.
  void ForbidEnd(bool calls, std::span<uint32_t> mask) const;

 private:
  // Tokens that fit where the first `written` bytes of mark `mark` have been written.
  struct Place {
    size_t mark = 0, written = 0;
    std::vector<int32_t> tokens;
  };

  const ThoughtMarks marks_;
  const BytesOf bytes_of_;
  const std::vector<int32_t> end_tokens_, call_ends_;
  std::vector<Place> begins_;    // tokens that write a part of the rest of the mark, or all of it
  std::vector<Place> overruns_;  // tokens that write the rest and more
  size_t longest_message_mark_ = 0;
  std::vector<int32_t> holds_mark_;  // tokens that hold a whole mark of `end` and more after it
};

// What the answer to one prompt begins with.
struct AnswerStart {
  bool inside_thought = false;  // the prompt has left a thought open
  bool may_think = true;        // else the answer does not begin a thought
  bool calls_end_it = false;    // ThoughtTokens's `call_ends` count
};

// An answer cannot end inside its thought, unless the constraint allows an empty text.
// REQUIRES: neither pointer is null.
std::shared_ptr<const Constraint> AfterThought(std::shared_ptr<const Constraint> constraint,
                                               std::shared_ptr<const ThoughtTokens> tokens,
                                               AnswerStart start);

}  // namespace sluice
