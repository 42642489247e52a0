// The comparable parts of a server's answer to a completion or a chat, streamed or not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::shadow {

struct AnswerChoice {
  std::string text;
  std::vector<int32_t> tokens;  // token ids; empty if the server does not return them
  // Logprobs of the chosen tokens; empty if the client did not request them.
  std::vector<double> logprobs;
  std::vector<int32_t> prompt;  // token ids of the prompt; empty if the server does not return them
  std::string finish_reason;    // "" if the answer did not end
  bool matched_stop = false;    // the server reports that a stop string or token ended the answer
  std::string other;            // parts besides text: "reasoning", "tool calls"; "" if none
};

struct Answer {
  std::vector<AnswerChoice> choices;                        // in the order of their `index`
  std::optional<int64_t> prompt_tokens, completion_tokens;  // from `usage`
};

// Reads the body of an answer with status 200. `is_stream`: it is a stream of server-sent events.
// kInvalidData if it does not have the format of the OpenAI API, or if a stream ended early or with
// an error.
Result<Answer> ReadAnswer(std::string_view body, bool is_stream);

}  // namespace sluice::shadow
