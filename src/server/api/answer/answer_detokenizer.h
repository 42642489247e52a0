// Converts an answer to text, token by token.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Returns the text that each token adds, without any text of the prompt. If the prompt ends inside
// a character, the token that completes it adds the whole character. If no token completes it, the
// character belongs to the prompt and is not shown. Thread safety: one thread at a time; copies are
// independent. Ownership: the tokenizer must outlive this object.
class AnswerDetokenizer {
 public:
  // `prompt`: the tokens before the answer's first one; only its last tokens matter.
  AnswerDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                    std::span<const int32_t> prompt = {});

  // Returns the text that `token` completes; often "".
  std::string Push(int32_t token);
  // Returns the text that was not returned yet.
  std::string Finish() { return detokenizer_.Finish(); }

 private:
  // Set if the prompt ends inside a character: the text of that character's tokens, and the U+FFFD
  // that replaces the character if no token completes it. The first text of the answer begins with
  // one of these.
  std::string prompt_text_, prompt_marks_;
  IncrementalDetokenizer detokenizer_;
};

}  // namespace sluice
