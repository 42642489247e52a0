// Writes the answer of POST /v1/completions as vLLM does.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/answer_json.h"
#include "server/api/openai/vllm_writer.h"

namespace sluice {
namespace {

class VllmCompletionWriter : public VllmWriter {
 public:
  VllmCompletionWriter(AnswerOptions options, std::shared_ptr<ResponseWriter> client)
      : VllmWriter({.object = "text_completion", .repeats_prompt = true, .bytes_per_logprob = 32},
                   std::move(options), std::move(client)) {}

 private:
  void AppendBegin(std::string& out, Choice& choice) const {
    out += fmt::format(R"({{"index":{},"text":)", choice.index);
    json::AppendString(out, choice.text);
    out += R"(,"logprobs":)";
    AppendColumns(out, choice);
    out.push_back(',');
    AppendFinish(out, choice.finish);
  }

  void AppendChunk(std::string& out, Choice& choice) const override {
    const std::vector<int32_t>& prompt = PromptOf(choice).tokens;
    AppendBegin(out, choice);
    out += R"(,"prompt_token_ids":)";
    AppendTokenIds(out, prompt, choice.is_first && (options_.echo || options_.return_token_ids));
    out += R"(,"token_ids":)";
    AppendTokenIds(out, choice.tokens, options_.return_token_ids);
    out += "}]";
    if (options_.continuous_usage) {
      out += R"(,"usage":)";
      AppendUsage(out, PromptOf(choice).num_tokens, choice.num_tokens);
      out.push_back('}');
    }
    if (choice.finish && !options_.include_usage) AppendFingerprint(out);
  }

  void AppendUsageChunk(std::string& out, const UsageEvent& usage) const override {
    AppendStreamUsage(out, usage, /*created_cache=*/"");
    AppendFingerprint(out);
    AppendStreamTimes(out, usage);
  }

  void AppendChoice(std::string& out, Choice& choice) const override {
    AppendBegin(out, choice);
    out += R"(,"token_ids":)";
    AppendTokenIds(out, choice.tokens, options_.return_token_ids);
    out += R"(,"prompt_logprobs":)";
    AppendPromptResult(out, choice.prompt);
    out += R"(,"prompt_token_ids":)";
    AppendTokenIds(out, PromptOf(choice).tokens, options_.return_token_ids);
    out += R"(,"routed_experts":null})";
  }

  void AppendEnd(std::string& out, const UsageEvent& usage) const override {
    AppendWholeUsage(out, usage, R"(,"created_cache_tokens":null)");
    AppendTimes(out, usage);
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeVllmCompletionWriter(AnswerOptions options,
                                                       std::shared_ptr<ResponseWriter> client) {
  return std::make_unique<VllmCompletionWriter>(std::move(options), std::move(client));
}

}  // namespace sluice
