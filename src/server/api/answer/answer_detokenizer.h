// The text of an answer, token by token.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Gives out what each token adds to the text and nothing of the prompt's. Where a prompt ends
// within a character, the token that completes it brings the whole character; where none does, it
// is the prompt's, and nothing is shown of it. Thread safety: one thread at a time; copies are
// independent. Ownership: the tokenizer outlives it.
class AnswerDetokenizer {
 public:
  // `prompt`: the tokens before the first one; its end is enough.
  AnswerDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                    std::span<const int32_t> prompt = {});

  // The text that `token` completes; often "".
  std::string Push(int32_t token);
  // The text not yet given out.
  std::string Finish() { return detokenizer_.Finish(); }

 private:
  // What a prompt that ends within a character brings before the first text: the text of that
  // character's tokens, and, where no token completes it, U+FFFD in its place.
  std::string prompt_text_, prompt_marks_;
  IncrementalDetokenizer detokenizer_;
};

}  // namespace sluice
