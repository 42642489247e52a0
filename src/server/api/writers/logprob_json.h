// Log-probabilities in the two shapes of OpenAI's API, and those of prompts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

struct LogprobStyle {
  const Tokenizer& tokenizer;
  int32_t count = 0;           // alternatives shown per token
  bool tokens_as_ids = false;  // "token_id:51" in place of the token's text
  bool shows_bytes = true;     // of a chat's tokens
};

// Where a choice's next token stands.
struct LogprobPosition {
  std::vector<int32_t> context;  // the last tokens before it
  int64_t offset = 0;            // characters of all tokens before it
};

// The text of one token: bytes of an unfinished character are "", and belong to the token that
// completes it. `context` are the tokens before it, of which up to four count.
std::string TokenText(const Tokenizer& tokenizer, int32_t token, std::span<const int32_t> context);

// The chosen token and then the most likely ones, none twice, `count` in all.
std::vector<std::pair<int32_t, float>> ChosenAndTop(const TokenLogprobs& logprobs, size_t count);

// The four parallel lists of a completion.
class LogprobColumns {
 public:
  explicit LogprobColumns(LogprobStyle style) : style_(style) {}

  void Add(std::span<const TokenLogprobs> logprobs, LogprobPosition& position);
  // Of a prompt, whose first token has none.
  void AddPrompt(std::span<const int32_t> prompt, const PromptResult& result,
                 LogprobPosition& position);
  void AppendTo(std::string& out) const;

 private:
  std::string Text(int32_t token, std::span<const int32_t> context) const;
  void AddToken(int32_t token, std::span<const int32_t> context, const TokenLogprobs* logprobs,
                int64_t& offset);

  const LogprobStyle style_;
  std::string offsets_, logprobs_, tokens_, tops_;
};

// The elements of a chat's list of logprobs, {"token":…,"logprob":…,"bytes":[…],
// "top_logprobs":[…]},…; with a comma before them if `out` is not empty.
void AppendLogprobElements(std::string& out, const LogprobStyle& style,
                           std::span<const TokenLogprobs> logprobs, LogprobPosition& position);

// A chat's {"content":[…]} of those.
void AppendLogprobList(std::string& out, const LogprobStyle& style,
                       std::span<const TokenLogprobs> logprobs, LogprobPosition& position);

// [null,{"51":{"logprob":-10.9,"rank":386,"decoded_token":"T"},…},…]
void AppendPromptLogprobs(std::string& out, const Tokenizer& tokenizer,
                          std::span<const int32_t> prompt, const PromptResult& result,
                          size_t count);
// The approximate number of bytes that AppendPromptLogprobs writes.
size_t PromptLogprobBytes(const PromptResult& result);

}  // namespace sluice
