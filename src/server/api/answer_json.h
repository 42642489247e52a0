// The pieces of JSON that all answers are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "server/api/generation.h"
#include "server/api/request_clock.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// What stands in every answer and every chunk of one request.
struct AnswerIdentity {
  std::string id;  // with its prefix
  std::string model;
  std::string fingerprint;
  int64_t created = 0;
  ApiDialect dialect = ApiDialect::kSluice;
  RequestClock clock;  // started when the request was taken in
  bool tell_times = false;
  // What the answer's head gets when the answer is complete; may be empty.
  std::function<void(HttpResponse&)> decorate;
};

const char* FinishReasonName(FinishReason reason);  // "stop", "length", "abort", "error"

// `"finish_reason":…,"stop_reason":…`; both null while a choice goes on.
void AppendFinish(std::string& out, const ChoiceDelta& delta);
void AppendTokenIds(std::string& out, std::span<const int32_t> ids);
void AppendLogprob(std::string& out, float logprob);  // -9999.0 at least: JSON has no infinity

// `{"prompt_tokens":…,"total_tokens":…,"completion_tokens":…` without the closing brace.
void AppendUsage(std::string& out, int64_t prompt_tokens, int64_t completion_tokens);

// The text of one token in lists of logprobs: bytes of an unfinished character are "", and belong
// to the token that completes it; `context` are the tokens before it, of which up to four count.
std::string TokenText(const Tokenizer& tokenizer, int32_t token, std::span<const int32_t> context);

// The chosen token and then the best ones, none twice, `count` in all.
std::vector<std::pair<int32_t, float>> ChosenAndTop(const TokenLogprobs& logprobs, size_t count);

// [null,{"51":{"logprob":-10.9,"rank":386,"decoded_token":"T"},…},…]
void AppendPromptLogprobs(std::string& out, const Tokenizer& tokenizer,
                          std::span<const int32_t> prompt, const PromptResult& result,
                          size_t count);

// "data: …\n\n"
inline constexpr std::string_view kEventEnd = "\n\n";
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
// A comment that keeps proxies from closing a quiet connection.
inline constexpr std::string_view kSilenceEvent = ": keep-alive\n\n";
// An error inside a stream, with spaces as the recordings of vLLM have it, followed by the end of
// the stream.
// How long AppendPromptLogprobs and AppendTokenIds write, about.
size_t PromptLogprobBytes(const PromptResult& result);
inline constexpr size_t kTokenIdBytes = 8;

std::string ErrorEvent(const ApiError& error);

}  // namespace sluice
