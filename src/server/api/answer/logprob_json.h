// Writes log-probabilities: of answers in the two shapes of OpenAI's API, and of prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/api/answer/answer_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

struct LogprobStyle {
  const Tokenizer& tokenizer;
  int32_t count = 0;           // number of alternatives shown per token
  bool tokens_as_ids = false;  // whether to write "token_id:51" instead of the token's text
  bool shows_bytes = true;     // for chats: whether to write each token's bytes
};

// Returns the text that each token of an answer adds, including special tokens. For a token that
// ends inside a character, the character's text belongs to the token that completes it.
class PendingTokens {
 public:
  PendingTokens() = default;
  // Starts after `prompt`; only its last tokens matter.
  PendingTokens(const Tokenizer& tokenizer, std::span<const int32_t> prompt);

  std::string Push(const Tokenizer& tokenizer, int32_t token);
  // Returns the text that Push(token) would return, but changes nothing.
  std::string TextOf(const Tokenizer& tokenizer, int32_t token) const;

 private:
  std::optional<AnswerDetokenizer> detokenizer_;  // nullopt before the first token
};

// Returns the chosen token, then the most likely ones, without duplicates, `count` in all.
std::vector<std::pair<int32_t, float>> ChosenAndTop(const TokenLogprobs& logprobs, size_t count);

// Returns, for each token of a prompt, the offset in `shown` at which its text begins, in
// characters. Tokens without text in `shown`, such as a begin-of-text token, have no width.
std::vector<int64_t> PromptOffsets(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                                   std::string_view shown);

// The four parallel lists in a completion's `logprobs`.
class LogprobColumns {
 public:
  explicit LogprobColumns(LogprobStyle style) : style_(style) {}

  // `offset`: position in the text that the client receives, in characters.
  void Add(const TokenLogprobs& logprobs, int64_t offset, PendingTokens& pending);
  // Adds a prompt's logprobs. Its first token has none. `offsets`: result of PromptOffsets().
  void AddPrompt(std::span<const int32_t> prompt, std::span<const int64_t> offsets,
                 const PromptResult& result, PendingTokens& pending);
  void AppendTo(std::string& out) const;

 private:
  std::string Shown(int32_t token, std::string text) const;
  void AddToken(int32_t token, int64_t offset, const TokenLogprobs* logprobs,
                PendingTokens& pending);

  const LogprobStyle style_;
  std::string offsets_, logprobs_, tokens_, tops_;
};

// Appends the elements of a chat's list of logprobs,
// {"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]},…; with a comma before them if `out` is
// not empty.
void AppendLogprobElements(std::string& out, const LogprobStyle& style,
                           std::span<const TokenLogprobs> logprobs, PendingTokens& pending);

// Appends a chat's {"content":[…]} with these elements.
void AppendLogprobList(std::string& out, const LogprobStyle& style,
                       std::span<const TokenLogprobs> logprobs, PendingTokens& pending);

// Appends [null,{"51":{"logprob":-10.9,"rank":386,"decoded_token":"T"},…},…].
void AppendPromptLogprobs(std::string& out, const Tokenizer& tokenizer,
                          std::span<const int32_t> prompt, const PromptResult& result,
                          size_t count);
// Returns the approximate number of bytes that AppendPromptLogprobs writes.
size_t PromptLogprobBytes(const PromptResult& result);

}  // namespace sluice
