// Writes the answer of POST /v1/chat/completions as trtllm-serve does.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/answer_json.h"
#include "server/api/openai/openai_writer.h"

namespace sluice {
namespace {

class TrtllmChatWriter : public OpenAiWriter {
 public:
  TrtllmChatWriter(AnswerOptions options, std::shared_ptr<ResponseWriter> client)
      : OpenAiWriter({.object = options.stream ? "chat.completion.chunk" : "chat.completion",
                      .bytes_per_logprob = 80},
                     std::move(options), std::move(client)) {}

 private:
  // Before the first tokens of any choice, sends the roles of all choices, then the echoes.
  void SendOpening() override {
    for (const Choice& choice : choices_) {
      std::string out = fmt::format(R"({{"index":{},"delta":{{"role":)", choice.index);
      json::AppendString(out, PromptOf(choice).role);
      out += R"(,"content":null)";
      AppendReasoningAndCalls(out, {});
      out += R"(null,"finish_reason":null,"stop_reason":null}])";
      AppendChunkUsage(out, 0);
      SendChunk(out);
    }
    SendEchoes();
  }

  void AppendChunk(std::string& out, Choice& choice) const override {
    out += fmt::format(R"({{"index":{},"delta":{{"content":)", choice.index);
    const bool says_else = !choice.reasoning.empty() || !choice.calls.empty();
    AppendString(out, choice.text, /*shown=*/!choice.text.empty() || !says_else);
    AppendReasoningAndCalls(out, choice);
    AppendList(out, choice);
    out.push_back(',');
    AppendFinish(out, choice.finish);
    out += "}]";
    AppendChunkUsage(out, choice.num_tokens);
  }

  // Appends the members between the content and the logprobs.
  void AppendReasoningAndCalls(std::string& out, const Choice& choice) const {
    for (const char* name : {"reasoning_content", "reasoning"}) {
      out += fmt::format(R"(,"{}":)", name);
      AppendString(out, choice.reasoning, /*shown=*/!choice.reasoning.empty());
    }
    out += R"(,"tool_calls":)";
    AppendToolCalls(out, choice.calls, /*pieces=*/options_.stream);
    out += R"(},"logprobs":)";
  }

  void AppendUsageChunk(std::string& out, const UsageEvent& usage) const override {
    AppendStreamUsage(out, usage, R"(,"created_cache_tokens":0)");
    AppendStreamTimes(out, usage);
  }

  void AppendChoice(std::string& out, Choice& choice) const override {
    out += fmt::format(R"({{"index":{},"message":{{"role":)", choice.index);
    json::AppendString(out, PromptOf(choice).role);
    out += R"(,"content":)";
    const bool says_else = !choice.reasoning.empty() || !choice.calls.empty();
    AppendString(out, choice.text, /*shown=*/!choice.text.empty() || !says_else);
    AppendReasoningAndCalls(out, choice);
    AppendList(out, choice);
    out.push_back(',');
    AppendFinish(out, choice.finish);
    out += R"(,"disaggregated_params":null})";
  }

  void AppendEnd(std::string& out, const UsageEvent& usage) const override {
    out += R"(,"usage":)";
    AppendUsage(out, usage.prompt_tokens, usage.completion_tokens);
    AppendSimulated(out);
    if (usage.reasoning_tokens) AppendCompletionDetails(out, usage);
    out += R"(},"prompt_token_ids":null)";
  }

  void AppendChunkUsage(std::string& out, int64_t completion_tokens) const override {
    out += R"(,"usage":)";
    if (!options_.continuous_usage) {
      out += "null";
      return;
    }
    AppendUsage(out, prompt_tokens_, completion_tokens);
    out.push_back('}');
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeTrtllmChatWriter(AnswerOptions options,
                                                   std::shared_ptr<ResponseWriter> client) {
  return std::make_unique<TrtllmChatWriter>(std::move(options), std::move(client));
}

}  // namespace sluice
