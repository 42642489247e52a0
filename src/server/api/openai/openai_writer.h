// Base of the writers of OpenAI's completions and chats: collects the events of each choice, and
// sends the chunks of a stream or a whole body.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer/answer_writer.h"
#include "server/api/answer/kept_memory.h"
#include "server/api/answer/logprob_json.h"

namespace sluice {

class OpenAiWriter : public AnswerWriter {
 public:
  void Write(AnswerStep step) final;
  std::optional<ApiError> Refusal() const final { return kept_.Refusal(); }

 protected:
  // The unsent part of a choice: in a stream, the part added by one step; otherwise the whole
  // choice.
  struct Choice {
    int index = 0, prompt = 0;
    bool begun = false;
    bool is_first = true;  // whether nothing of this choice has been sent
    std::string text;
    std::string reasoning;
    std::vector<ToolCallEvent> calls;  // fragments in a stream, otherwise complete calls
    std::vector<int32_t> tokens;
    std::vector<TokenLogprobs> logprobs;
    std::vector<int64_t> offsets;  // for each of `logprobs`, its offset in the text without the
                                   // echo, in characters
    PendingTokens pending;         // state before the first of `logprobs`
    int64_t num_shown = 0;         // number of characters that were sent together with logprobs
    std::optional<FinishEvent> finish;
    int64_t num_tokens = 0;  // includes tokens already sent
  };

  struct Format {
    // The value of "object" in the JSON. If "", the member is omitted and the id's key is
    // request_id.
    std::string_view object;
    bool repeats_prompt = false;   // whether each choice includes its prompt
    size_t bytes_per_logprob = 0;  // approximate size of a token's logprob in JSON
  };

  OpenAiWriter(Format format, AnswerOptions options, std::shared_ptr<ResponseWriter> client);

  // Sends the chunks of a stream that precede the first chunk with tokens. May send the choices'
  // echo and set `echo_sent_`.
  virtual void SendOpening() {}
  // Adds the usage so far to a chunk, if the client requested it.
  virtual void AppendChunkUsage(std::string& /*out*/, int64_t /*completion_tokens*/) const {}
  // Appends the only element of a chunk's `choices` and the members after the list, but no closing
  // brace.
  virtual void AppendChunk(std::string& out, Choice& choice) const = 0;
  // With include_usage: appends the members of the last chunk after its empty list, but no closing
  // brace.
  virtual void AppendUsageChunk(std::string& out, const UsageEvent& usage) const = 0;
  // AppendChoice appends an element of `choices` in a whole body. AppendEnd appends the members
  // after the list, but no closing brace.
  virtual void AppendChoice(std::string& out, Choice& choice) const = 0;
  virtual void AppendEnd(std::string& out, const UsageEvent& usage) const = 0;

  // Sends chunks with the echo of a chat's choices.
  void SendEchoes();
  // `content`: the JSON from the first element of `choices` on, without the closing brace.
  void SendChunk(std::string_view content);

  // Append the values of JSON members; null if they were not requested.
  void AppendColumns(std::string& out, Choice& choice) const;  // a completion's logprobs
  void AppendList(std::string& out, Choice& choice) const;     // a chat's logprobs
  void AppendPromptResult(std::string& out, int prompt) const;
  // Appends the member "simulated" of the usage, if answers are simulated.
  void AppendSimulated(std::string& out) const;
  // Appends `,"usage":…` of a stream's last chunk. `created_cache` is written after the cached
  // tokens.
  void AppendStreamUsage(std::string& out, const UsageEvent& usage,
                         std::string_view created_cache) const;
  // Appends `,"metrics":…` of a stream's last chunk, if the answer includes its latencies.
  void AppendStreamTimes(std::string& out, const UsageEvent& usage) const;
  // Whether the answer includes its latencies. False with several choices, whose times would be
  // ambiguous.
  bool tells_times() const;

  const AnswerOptions::Prompt& PromptOf(const Choice& choice) const {
    return options_.prompts[static_cast<size_t>(choice.prompt)];
  }

  const AnswerOptions options_;
  std::vector<Choice> choices_;
  int64_t prompt_tokens_ = 0;  // of all prompts
  bool echo_sent_ = false;

 private:
  Choice& ChoiceAt(int index);
  void StartStream();
  void Keep(size_t bytes) { kept_.Add(bytes); }

  void Take(PromptEvent event);
  void Take(TokensEvent event);
  void Take(const TextEvent& event);
  void Take(const ReasoningEvent& event);
  void Take(ToolCallEvent event);
  void Take(FinishEvent event);
  void Take(const KeepAliveEvent& event);
  void Take(const UsageEvent& usage);
  void Take(const ErrorEvent& event);

  const Format format_;
  const std::shared_ptr<ResponseWriter> client_;
  std::string head_;  // start of the body and of every chunk, up to the choices
  std::vector<PromptResult> prompt_results_;
  Choice* changed_ = nullptr;  // the choice that the current step changed; null: none
  bool streaming_ = false, opened_ = false;
  KeptMemory kept_{options_};
};

}  // namespace sluice
