// The events of an answer, which a generation produces and an AnswerWriter consumes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/api/common/api_error.h"
#include "server/api/common/request_clock.h"

namespace sluice {

// The engine has computed a prompt. Precedes the events of the prompt's choices.
struct PromptEvent {
  int prompt = 0;
  PromptResult result;
};

// Events about one choice carry its index: prompt index * n + sequence index.

// New tokens of a choice. Their text may follow later, or not at all if they end the choice.
struct TokensEvent {
  int choice = 0;
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;  // one per token if requested
  // For each entry of `logprobs`: number of characters in the choice's text before the token.
  std::vector<int64_t> offsets = {};
};

// Content: complete UTF-8 characters that can no longer be part of a stop string.
struct TextEvent {
  int choice = 0;
  std::string text;
  bool is_break = false;  // whether the text is a line break between two messages of the model
  // With GenerationRequest::splits_logprobs: logprobs of the content's tokens.
  std::vector<TokenLogprobs> logprobs = {};
};

// Reasoning text, if a reasoning parser separates it from the content.
struct ReasoningEvent {
  int choice = 0;
  std::string text;
  bool is_break = false;  // as in TextEvent
};

// A fragment of a tool call. The calls of a choice are numbered from 0. The first event of a call
// has its id and name; a call is complete once the next one begins.
struct ToolCallEvent {
  int choice = 0;
  int call = 0;
  std::string id;
  std::string name;
  std::string arguments;  // a fragment of JSON, as the model wrote it
};

// The tokens [begin, end) of a choice were sampled after `weights` updates of the weights.
struct WeightSpan {
  int64_t weights = 0;
  int64_t begin = 0, end = 0;
};

// Counts one more token of a choice, sampled after `weights` updates of the weights.
inline void CountToken(int64_t weights, std::vector<WeightSpan>& spans) {
  const int64_t count = spans.empty() ? 0 : spans.back().end;
  if (spans.empty() || spans.back().weights != weights) spans.push_back({weights, count, count});
  ++spans.back().end;
}

// The last event of a choice.
struct FinishEvent {
  struct Repetition {};  // the request's repetition_detection matched
  int choice = 0;
  FinishReason reason = FinishReason::kStop;
  // The stop string or stop token of the request that ended the choice.
  std::variant<std::monostate, std::string, int32_t, Repetition> cause = {};
  bool called_tools = false;             // whether the choice has called a tool
  std::vector<WeightSpan> weights = {};  // versions of the weights for all its tokens, in order
};

// Returns "stop", "tool_calls", "length", "abort", "error" or "repetition".
std::string_view FinishReasonName(const FinishEvent& finish);

// Sent when a stream has had nothing to send for --sse-keep-alive-interval.
struct KeepAliveEvent {};

// The last event of a complete answer.
struct UsageEvent {
  int64_t prompt_tokens = 0;                     // total of all prompts
  int64_t completion_tokens = 0;                 // total of all choices
  int64_t cached_tokens = 0;                     // value of the last prompt in the list
  std::optional<int64_t> reasoning_tokens = {};  // total of all choices, if there is a reasoning
                                                 // parser
  RequestClock clock;
  // The receipt as JSON; null: the server issues none.
  std::shared_ptr<const std::string> receipt = {};
};

// The last event of an answer that failed. Events of choices may precede it.
struct ErrorEvent {
  ApiError error;
};

using AnswerEvent = std::variant<PromptEvent, TokensEvent, TextEvent, ReasoningEvent, ToolCallEvent,
                                 FinishEvent, KeepAliveEvent, UsageEvent, ErrorEvent>;

// Events that belong together. All events of choices in a step are about the same choice, and a
// stream sends them as one chunk.
using AnswerStep = std::vector<AnswerEvent>;

}  // namespace sluice
