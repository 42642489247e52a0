// The text of an answer, token by token.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Returns the text that each token adds, without any text of the prompt. If the prompt ends within
// a character, the token that completes it adds the whole character; if no token completes it, the
// character belongs to the prompt and is not shown. Thread safety: one thread at a time; copies are
// independent. Ownership: the tokenizer outlives it.
class AnswerDetokenizer {
 public:
  // `prompt`: the tokens before the first one; only its last tokens matter.
  AnswerDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                    std::span<const int32_t> prompt = {});

  // The text that `token` completes; often "".
  std::string Push(int32_t token);
  // The text not yet returned.
  std::string Finish() { return detokenizer_.Finish(); }

 private:
  // If the prompt ends within a character, the first text begins with the text of that character's
  // tokens and, if no token completes it, with U+FFFD in its place.
  std::string prompt_text_, prompt_marks_;
  IncrementalDetokenizer detokenizer_;
};

}  // namespace sluice
