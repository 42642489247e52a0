// Writes the answer of POST /v1/completions as trtllm-serve does.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/answer_json.h"
#include "server/api/openai/openai_writer.h"

namespace sluice {
namespace {

class TrtllmCompletionWriter : public OpenAiWriter {
 public:
  TrtllmCompletionWriter(AnswerOptions options, std::shared_ptr<ResponseWriter> client)
      : OpenAiWriter({.object = "text_completion", .repeats_prompt = true, .bytes_per_logprob = 32},
                     std::move(options), std::move(client)) {}

 private:
  void AppendBegin(std::string& out, Choice& choice) const {
    out += fmt::format(R"({{"index":{},"text":)", choice.index);
    json::AppendString(out, choice.text);
    out += R"(,"token_ids":)";
    AppendTokenIds(out, choice.tokens, options_.return_token_ids);
    out += R"(,"logprobs":)";
    AppendColumns(out, choice);
  }

  void AppendChunk(std::string& out, Choice& choice) const override {
    AppendBegin(out, choice);
    out.push_back(',');
    AppendFinish(out, choice.finish);
    out += R"(}],"usage":)";
    if (options_.continuous_usage) {
      AppendUsage(out, PromptOf(choice).num_tokens, choice.num_tokens);
      out.push_back('}');
    } else {
      out += "null";
    }
  }

  void AppendUsageChunk(std::string& out, const UsageEvent& usage) const override {
    AppendStreamUsage(out, usage, /*created_cache=*/"");
    AppendStreamTimes(out, usage);
  }

  void AppendChoice(std::string& out, Choice& choice) const override {
    AppendBegin(out, choice);
    out += R"(,"context_logits":null,)";
    AppendFinish(out, choice.finish);
    out += R"(,"disaggregated_params":null})";
  }

  void AppendEnd(std::string& out, const UsageEvent& usage) const override {
    out += R"(,"usage":)";
    AppendUsage(out, usage.prompt_tokens, usage.completion_tokens);
    AppendSimulated(out);
    // The same value as in trtllm-serve: null for one prompt, an empty list for several.
    out +=
        options_.prompts.size() > 1 ? R"(},"prompt_token_ids":[])" : R"(},"prompt_token_ids":null)";
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeTrtllmCompletionWriter(AnswerOptions options,
                                                         std::shared_ptr<ResponseWriter> client) {
  return std::make_unique<TrtllmCompletionWriter>(std::move(options), std::move(client));
}

}  // namespace sluice
