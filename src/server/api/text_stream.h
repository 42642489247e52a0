// Incremental detokenization of one sequence: complete characters, withholding what may be the
// start of a stop string.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/shared_list.h"
#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

struct StopRules {
  SharedList<std::string> strings;  // not empty ones
  bool include_in_output = false;
  int64_t min_tokens = 0;  // text of the first so many tokens is not searched
};

// Takes tokens one at a time. The first stop string that is complete ends the text where it starts
// (where it ends, with `include_in_output`). Until the end, characters that may be the start of one
// are withheld. Thread safety: one thread at a time. Ownership: the tokenizer outlives it. Memory:
// the text that has not been taken, and as much before it as the longest stop string.
class TextStream {
 public:
  // `prompt`: the tokens before the first one.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules,
             bool skip_special_tokens);

  // The stop string that this token completes, if any: nothing may be pushed after it.
  std::optional<std::string> Push(int32_t token);
  // A token that ends the sequence and whose text is not shown.
  void PushSilent() { ++num_tokens_; }
  // The sequence is complete; unfinished characters are dropped.
  void Finish();

  // The available text since the last call.
  std::string Take();

 private:
  void Search(size_t new_bytes, std::optional<std::string>& match);

  IncrementalDetokenizer detokenizer_;
  const StopRules rules_;
  size_t held_characters_ = 0;
  size_t longest_stop_bytes_ = 0;
  std::string text_;
  size_t taken_ = 0;  // bytes of text_ that were given out
  int64_t num_tokens_ = 0;
  bool finished_ = false;
};

}  // namespace sluice
