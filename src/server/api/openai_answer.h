// What the answers to completions and to chats share: head and end, and how they are sent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/answer_json.h"
#include "server/api/generation.h"

namespace sluice {

// What an answer needs to know of its request.
struct AnswerOptions {
  AnswerIdentity identity;
  std::shared_ptr<const ModelContext> model;
  int n = 1;  // choices a prompt
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  std::optional<int32_t> logprobs;  // how many alternatives a token has
  std::optional<int32_t> prompt_logprobs;
};

class OpenAiAnswer : public AnswerWriter {
 public:
  void OnSilence() override;
  void OnFailure(const ApiError& error) override;
  bool is_too_large() const override;

 protected:
  // `object` is its name in the JSON.
  OpenAiAnswer(AnswerOptions&& options, std::string_view object, size_t num_choices,
               std::shared_ptr<ResponseWriter> writer);

  bool IsTrtllm() const { return options_.identity.dialect == ApiDialect::kTrtllm; }
  void Count(int prompt, const PromptResult& result);
  void Count(const ChoiceDelta& delta);

  // Of what a whole answer is made of, `bytes` more are kept.
  void Keep(size_t bytes) { kept_bytes_ += bytes; }

  // A stream: its head, a chunk (`event` lacks the last brace), its end; what `created_cache` adds
  // stands behind the cached tokens.
  void StartStream();
  void WriteEvent(std::string event);
  void EndStream(std::string_view created_cache);

  // A whole body: what follows the choices, then, behind what an answer adds to it, the end.
  void AppendWholeUsage(std::string& body, std::string_view created_cache) const;
  void SendWhole(std::string body);
  void Send(std::string body);

  // Left out of a stream, null in a whole body where there is none.
  void AppendFingerprint(std::string& out) const;

  const AnswerOptions options_;
  std::string head_;           // of the body and of every chunk, up to the choices
  int64_t prompt_tokens_ = 0;  // of all prompts
  int64_t completion_tokens_ = 0;

 private:
  const std::shared_ptr<ResponseWriter> writer_;
  const bool tells_times_;  // those of several sequences would be nobody's
  int last_prompt_ = 0;
  int64_t cached_tokens_ = 0;  // of the last prompt, whenever it was worked on
  RequestClock clock_;
  bool streaming_ = false;
  size_t kept_bytes_ = 0;
};

}  // namespace sluice
