// Writes the answer of POST /v1/chat/completions as vLLM does.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/answer_json.h"
#include "server/api/openai/vllm_writer.h"

namespace sluice {
namespace {

constexpr std::string_view kCreatedCache = R"(,"created_cache_tokens":0)";

class VllmChatWriter : public VllmWriter {
 public:
  VllmChatWriter(AnswerOptions options, std::shared_ptr<ResponseWriter> client)
      : VllmWriter({.object = options.stream ? "chat.completion.chunk" : "chat.completion",
                    .bytes_per_logprob = 80},
                   std::move(options), std::move(client)) {}

 private:
  // Before the first tokens of any choice, sends the roles of all choices, then the echoes.
  void SendOpening() override {
    for (const Choice& choice : choices_) {
      std::string out = fmt::format(R"({{"index":{},"delta":{{"role":)", choice.index);
      json::AppendString(out, PromptOf(choice).role);
      out += R"(,"content":""},"logprobs":null,"finish_reason":null}])";
      AppendChunkUsage(out, 0);
      AppendPrompt(out);
      SendChunk(out);
    }
    SendEchoes();
  }

  void AppendChunk(std::string& out, Choice& choice) const override {
    out += fmt::format(R"({{"index":{},"delta":{{)", choice.index);
    AppendDelta(out, choice);
    out += R"(},"logprobs":)";
    AppendList(out, choice);
    out.push_back(',');
    if (choice.finish) {
      AppendFinish(out, choice.finish);
    } else {
      out += R"("finish_reason":null)";
    }
    out += R"(,"token_ids":)";
    AppendTokenIds(out, choice.tokens, options_.return_token_ids);
    out += "}]";
    AppendChunkUsage(out, choice.num_tokens);
    if (choice.finish && !options_.include_usage) AppendFingerprint(out);
  }

  // Appends the chunk's new content; nothing if the chunk only ends the choice.
  void AppendDelta(std::string& out, const Choice& choice) const {
    if (!options_.parsed) {
      out += R"("content":)";
      json::AppendString(out, choice.text);
      return;
    }
    std::string_view comma;
    if (!choice.reasoning.empty()) {
      for (const char* name : {"reasoning", "reasoning_content"}) {
        out += fmt::format(R"({}"{}":)", comma, name);
        json::AppendString(out, choice.reasoning);
        comma = ",";
      }
    }
    if (!choice.text.empty()) {
      out += fmt::format(R"({}"content":)", comma);
      json::AppendString(out, choice.text);
      comma = ",";
    }
    if (!choice.calls.empty()) {
      out += fmt::format(R"({}"tool_calls":)", comma);
      AppendToolCalls(out, choice.calls, /*pieces=*/true);
    }
  }

  void AppendUsageChunk(std::string& out, const UsageEvent& usage) const override {
    AppendStreamUsage(out, usage, kCreatedCache);
    AppendFingerprint(out);
    AppendStreamTimes(out, usage);
  }

  void AppendChoice(std::string& out, Choice& choice) const override {
    out += fmt::format(R"({{"index":{},"message":{{"role":)", choice.index);
    json::AppendString(out, PromptOf(choice).role);
    out += R"(,"content":)";
    const bool says_else = choice.calls.empty() ? !choice.reasoning.empty() : !options_.must_call;
    AppendString(out, choice.text, /*shown=*/!choice.text.empty() || !says_else);
    out += R"(,"refusal":null,"annotations":null,"audio":null,"function_call":null)";
    if (!choice.calls.empty()) {
      out += R"(,"tool_calls":)";
      AppendToolCalls(out, choice.calls, /*pieces=*/false);
    }
    out += R"(,"reasoning":)";
    AppendString(out, choice.reasoning, /*shown=*/!choice.reasoning.empty());
    // vLLM 0.11 used this name for `reasoning`; vLLM 0.32 does not have it.
    if (!choice.reasoning.empty() && options_.model->config.dialect != ApiDialect::kVllm) {
      out += R"(,"reasoning_content":)";
      json::AppendString(out, choice.reasoning);
    }
    out += R"(},"logprobs":)";
    AppendList(out, choice);
    out.push_back(',');
    AppendFinish(out, choice.finish);
    out += R"(,"token_ids":)";
    AppendTokenIds(out, choice.tokens, options_.return_token_ids);
    out += R"(,"routed_experts":null})";
  }

  void AppendEnd(std::string& out, const UsageEvent& usage) const override {
    AppendWholeUsage(out, usage, kCreatedCache);
    out += R"(,"prompt_logprobs":)";
    AppendPromptResult(out, /*prompt=*/0);
    AppendPrompt(out);
    AppendTimes(out, usage);
  }

  void AppendChunkUsage(std::string& out, int64_t completion_tokens) const override {
    if (!options_.continuous_usage) return;
    out += R"(,"usage":)";
    AppendUsage(out, prompt_tokens_, completion_tokens);
    out += R"(,"completion_tokens_details":null})";
  }

  void AppendPrompt(std::string& out) const {
    const AnswerOptions::Prompt& prompt = options_.prompts[0];
    const bool single = options_.prompts.size() == 1;
    out += R"(,"prompt_token_ids":)";
    AppendTokenIds(out, prompt.tokens, single && options_.return_token_ids);
    out += R"(,"prompt_text":)";
    AppendString(out, prompt.text, single && options_.return_prompt_text);
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeVllmChatWriter(AnswerOptions options,
                                                 std::shared_ptr<ResponseWriter> client) {
  return std::make_unique<VllmChatWriter>(std::move(options), std::move(client));
}

}  // namespace sluice
