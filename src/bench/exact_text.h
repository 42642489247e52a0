// Makes texts with a given number of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/prompt_tokenizer.h"

namespace sluice::bench {

// Thread safety: one thread at a time. The tokenizer must outlive this object.
class ExactText {
 public:
  explicit ExactText(const PromptTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Returns a text that the tokenizer encodes to exactly `count` tokens (without special ones). The
  // text is similar to the text of `ids`. Uses vLLM's method: decode, encode, then truncate or fill
  // with `random_ids(n)`, up to ten times. If that fails, replaces the last tokens by a filler that
  // is always one token. Sets `ids` to the tokens of the text; their number differs from `count`
  // only if the vocabulary has no filler.
  std::string Make(std::vector<int32_t>& ids, int64_t count,
                   const std::function<std::vector<int64_t>(int64_t)>& random_ids);

 private:
  size_t Count(const std::string& text) const { return tokenizer_.Encode(text, false).size(); }
  const std::string& Filler();

  const PromptTokenizer& tokenizer_;
  std::optional<std::string> filler_;  // "" if the vocabulary has none
};

}  // namespace sluice::bench
