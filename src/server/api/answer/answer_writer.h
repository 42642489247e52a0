// Writes an answer to the client. There is a writer for every dialect and shape; it converts the
// answer's events to a JSON body or to server-sent events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/common/answer_event.h"
#include "server/api/common/model_context.h"
#include "server/http/http_types.h"

namespace sluice {

// Thread safety: one thread at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // Writes the events of a step. Not called after a step with a UsageEvent or an ErrorEvent.
  virtual void Write(AnswerStep step) = 0;
  // Returns an error once the request must fail: the answer as a whole exceeds
  // ServerConfig::max_answer_bytes, or the memory that requests may hold.
  virtual std::optional<ApiError> Refusal() const { return std::nullopt; }
};

// The facts about a request that a writer needs.
struct AnswerOptions {
  struct Prompt {
    int64_t num_tokens = 0;
    std::vector<int32_t> tokens;  // filled if shows_prompt_tokens()
    std::vector<int32_t> tail;    // the last prompt tokens; filled if logprobs are shown
    std::string echo;             // text with which each of the prompt's choices begins
    std::string text;             // the rendered conversation, for return_prompt_text
    std::string role = "assistant";
  };

  std::string id;       // includes its prefix, such as "cmpl-"
  int64_t created = 0;  // Unix time in seconds
  std::shared_ptr<const ModelContext> model;
  std::string adapter;  // name of the adapter that answers; "": the model itself
  const std::string& model_name() const { return adapter.empty() ? model->name() : adapter; }
  // The request's memory, which grows with an answer that is not streamed; may be null.
  std::shared_ptr<MemoryLease> memory;
  // Adds headers to an answer that is not streamed; may be empty.
  std::function<void(HttpResponse&)> add_headers;
  // Returns the name of the weights after the given number of updates (WeightSpan). Empty: the name
  // is not shown.
  std::function<std::string(int64_t)> weight_version;
  std::vector<Prompt> prompts;  // not empty

  int n = 1;  // number of choices per prompt
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool echo = false;
  bool return_token_ids = false;
  bool return_prompt_text = false;
  bool tokens_as_ids = false;       // whether logprobs name tokens as "token_id:N"
  std::optional<int32_t> logprobs;  // number of alternatives shown per token
  // The alternatives are the tokens of logprob_token_ids and are shown in addition to the token
  // itself.
  bool lists_logprobs = false;
  std::optional<int32_t> prompt_logprobs;
  bool hide_text = false;      // whether token ids are shown instead of text
  bool parsed = false;         // whether reasoning and tool calls are separated from the text
  bool must_call = false;      // AnswerParsing::must_call
  bool hide_logprobs = false;  // whether to show only the prompt's logprobs, not the choices'
                               // logprobs

  bool shows_prompt_tokens() const { return echo || return_token_ids || prompt_logprobs; }
};

// Approximate size of a token id in JSON.
inline constexpr size_t kTokenIdBytes = 8;

// Creates a writer. Each factory is defined in a file in openai/ or anthropic/.
using WriterFactory = std::unique_ptr<AnswerWriter>(AnswerOptions options,
                                                    std::shared_ptr<ResponseWriter> client);
WriterFactory MakeVllmCompletionWriter;
WriterFactory MakeVllmChatWriter;
WriterFactory MakeTrtllmCompletionWriter;
WriterFactory MakeTrtllmChatWriter;
WriterFactory MakeMessagesWriter;
WriterFactory MakeGenerateWriter;

}  // namespace sluice
