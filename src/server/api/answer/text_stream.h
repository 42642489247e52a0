// Incremental detokenization of one sequence: returns complete characters and withholds those that
// may start a stop string.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parsers/stop_search.h"
#include "server/api/answer/answer_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Takes tokens one at a time. The first stop string to be complete ends the text where it starts
// (with `include_in_output`, where it ends). Until the end, characters that may start a stop string
// are withheld. Thread safety: one thread at a time. Ownership: the tokenizer outlives it. Memory:
// the text that has not been taken, and before it as much as the longest stop string.
class TextStream {
 public:
  // `prompt`: the tokens before the first one.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules,
             bool skip_special_tokens);

  // The stop string that this token completes, if any; after it, nothing may be pushed.
  std::optional<std::string> Push(int32_t token);
  // Counts a token that ends the sequence and whose text is not shown.
  void PushSilent() { ++num_tokens_; }
  // The sequence is complete; unfinished characters are dropped.
  void Finish();

  // The text that became available since the last call.
  std::string Take();
  // Number of characters of the text so far, including those withheld or removed by a stop string.
  int64_t num_characters() const { return num_characters_; }

  int64_t num_tokens() const { return num_tokens_; }

 private:
  AnswerDetokenizer detokenizer_;
  StopSearch search_;
  int64_t num_tokens_ = 0;
  int64_t num_characters_ = 0;
  bool finished_ = false;
};

}  // namespace sluice
