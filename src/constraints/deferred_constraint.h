// A constraint that applies only after a model's thought (reasoning). An answer begins with a
// thought only if the prompt has left one open, or if the answer begins with a mark that opens one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "constraints/constraint.h"

namespace sluice {

// The marks that begin and end a thought in the text.
struct ThoughtMarks {
  std::vector<std::string> begin;  // an answer that begins with one of these begins with a thought
  std::vector<std::string> end;    // not empty; the constraint applies from the token after such a
                                   // mark
  // If not "": marks of `end` count only after this text, which may begin within the `begin` mark.
  std::string before_end = {};
  // For thoughts that are a sequence of messages: a call may end the answer only in the text of a
  // message whose header names a tool. If `text` is empty, a call may end the answer anywhere.
  struct Messages {
    std::vector<std::string> begin, end;
    std::string text;       // ends a header
    std::string recipient;  // shows a call in a header
  };
  Messages messages = {};
};

// The marks, found in the tokens of a vocabulary. Thread safety: immutable.
class ThoughtTokens {
 public:
  using BytesOf = std::function<std::string(int32_t)>;

  // `bytes_of`: returns the text that a token adds, for ids below `num_tokens`; this object keeps
  // it. `end_tokens` end an answer. Tokens in `call_ends` may also end it inside a thought, where
  // `marks` allow a call to end.
  ThoughtTokens(ThoughtMarks marks, int32_t num_tokens, BytesOf bytes_of,
                std::vector<int32_t> end_tokens, std::vector<int32_t> call_ends);

  const ThoughtMarks& marks() const { return marks_; }
  std::string BytesOfToken(int32_t token) const { return bytes_of_(token); }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  size_t longest_message_mark() const {
    return longest_message_mark_;
  }  // among the marks in ThoughtMarks::messages
  bool EndsAnswer(int32_t token) const;
  bool EndsCall(int32_t token) const;

  // Allows in `mask` the tokens that continue a mark of `begin` after its beginning `begun`.
  void AllowBegin(const std::string& begun, std::span<uint32_t> mask) const;
  // Forbids in `mask` the tokens that, after `tail`, would complete a mark and add more text after
  // it.
  void ForbidOverrun(const std::string& tail, std::span<uint32_t> mask) const;
  // Forbids in `mask` the tokens that end an answer. With `calls`, the tokens in `call_ends` stay
  // allowed.
  void ForbidEnd(bool calls, std::span<uint32_t> mask) const;

 private:
  // The tokens that can follow the first `written` bytes of mark `mark`.
  struct Place {
    size_t mark = 0, written = 0;
    std::vector<int32_t> tokens;
  };

  const ThoughtMarks marks_;
  const BytesOf bytes_of_;
  const std::vector<int32_t> end_tokens_, call_ends_;
  std::vector<Place> begins_;    // tokens whose text is a prefix of the rest of the mark
  std::vector<Place> overruns_;  // tokens that write the rest of the mark and more
  size_t longest_message_mark_ = 0;
  std::vector<int32_t> holds_mark_;  // tokens that contain a whole mark of `end` and more after it
};

// The state in which the answer to one prompt starts.
struct AnswerStart {
  bool inside_thought = false;  // the prompt has left a thought open
  bool may_think = true;        // false: the answer does not begin with a thought
  bool calls_end_it = false;    // whether the `call_ends` of ThoughtTokens may end a thought
};

// Applies `constraint` after the thought. An answer cannot end inside its thought, unless the
// constraint allows an empty text. REQUIRES: neither pointer is null.
std::shared_ptr<const Constraint> AfterThought(std::shared_ptr<const Constraint> constraint,
                                               std::shared_ptr<const ThoughtTokens> tokens,
                                               AnswerStart start);

}  // namespace sluice
