// Incremental detokenization of one sequence. Returns complete characters, but withholds text that
// may begin a stop string.
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

// Takes tokens one at a time. The stop string that is completed first ends the text where that
// string begins or, with `include_in_output`, where it ends. Characters that may begin a stop
// string are withheld until the end. Thread safety: one thread at a time. Ownership: the tokenizer
// must outlive this object. Memory: the text that Take() has not returned yet, and a preceding part
// as long as the longest stop string.
class TextStream {
 public:
  // `prompt`: the tokens before the first one.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules,
             bool skip_special_tokens);

  // Returns the stop string that this token completes, if any. Push nothing after that.
  std::optional<std::string> Push(int32_t token);
  // Counts a token that ends the sequence and whose text is not shown.
  void PushSilent() { ++num_tokens_; }
  // Ends the text. Unfinished characters are dropped.
  void Finish();

  // Returns the text that became available since the last call.
  std::string Take();
  // Number of characters so far, including those withheld or removed by a stop string.
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
