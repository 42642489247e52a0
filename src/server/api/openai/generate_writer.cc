// Writes the answer of POST /inference/v1/generate as vLLM does. Prompt and answer consist of
// tokens.
#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/answer_json.h"
#include "server/api/openai/openai_writer.h"

namespace sluice {
namespace {

// Replaces -infinity, which JSON does not have.
constexpr double kLeastLogprob = -9999;

void AppendTokenLogprob(std::string& out, int32_t token, float logprob, int64_t rank) {
  out += fmt::format(R"({{"token_id":{},"logprob":)", token);
  json::AppendDouble(out, std::max(static_cast<double>(logprob), kLeastLogprob));
  out += R"(,"rank":)";
  out += rank > 0 ? fmt::format("{}", rank) : "null";
}

class GenerateWriter : public OpenAiWriter {
 public:
  GenerateWriter(AnswerOptions options, std::shared_ptr<ResponseWriter> client)
      : OpenAiWriter({.object = "", .repeats_prompt = false, .bytes_per_logprob = 64},
                     std::move(options), std::move(client)) {}

 private:
  bool shows_text() const { return !options_.hide_text; }

  void AppendTokenLogprobs(std::string& out, Choice& choice) const {
    out += R"({"content":[)";
    for (const TokenLogprobs& logprobs : choice.logprobs) {
      if (&logprobs != choice.logprobs.data()) out.push_back(',');
      AppendTokenLogprob(out, logprobs.token, logprobs.logprob, logprobs.rank);
      out += R"(,"top_logprobs":[)";
      const int32_t wanted = *options_.logprobs;  // -1 means all
      const auto shown =
          ChosenAndTop(logprobs, static_cast<size_t>(wanted < 0 || options_.lists_logprobs
                                                         ? std::ssize(logprobs.top) + 1
                                                         : std::max(1, wanted)));
      for (size_t i = 0; i < shown.size(); ++i) {
        if (i > 0) out.push_back(',');
        const bool is_chosen = shown[i].first == logprobs.token;
        // The rank of a listed token is not known.
        const int64_t place = options_.lists_logprobs ? 0 : RankOf(logprobs, shown[i].first);
        AppendTokenLogprob(out, shown[i].first, shown[i].second, is_chosen ? logprobs.rank : place);
        out.push_back('}');
      }
      out += "]}";
    }
    out += "]}";
    choice.logprobs.clear();
    choice.offsets.clear();
  }

  // Returns the rank of `token` among the most likely ones, counted from 1; 0 if it is not among
  // them.
  static int64_t RankOf(const TokenLogprobs& logprobs, int32_t token) {
    for (size_t i = 0; i < logprobs.top.size(); ++i) {
      if (logprobs.top[i].first == token) return static_cast<int64_t>(i) + 1;
    }
    return 0;
  }

  void AppendAnyChoice(std::string& out, Choice& choice) const {
    out += fmt::format(R"({{"index":{},)", choice.index);
    if (shows_text()) {
      out += R"("text":)";
      json::AppendString(out, choice.text);
      out.push_back(',');
    }
    out += R"("logprobs":)";
    if (!options_.logprobs)
      out += "null";
    else if (shows_text())
      AppendList(out, choice);
    else
      AppendTokenLogprobs(out, choice);
    out.push_back(',');
    AppendFinish(out, choice.finish);
    out += R"(,"token_ids":)";
    AppendTokenIds(out, choice.tokens);
    out += R"(,"routed_experts":null,"sampling_mask":null,"weight_versions":)";
    AppendWeightVersions(out, choice);
    out.push_back('}');
  }

  // Writes the weight versions of a finished choice. Adjacent spans with the same version are
  // merged.
  void AppendWeightVersions(std::string& out, const Choice& choice) const {
    if (!choice.finish || choice.finish->weights.empty() || !options_.weight_version) {
      out += "null";
      return;
    }
    const std::vector<WeightSpan>& spans = choice.finish->weights;
    out.push_back('[');
    for (size_t i = 0; i < spans.size();) {
      const std::string version = options_.weight_version(spans[i].weights);
      size_t next = i + 1;
      while (next < spans.size() && options_.weight_version(spans[next].weights) == version) ++next;
      out += i > 0 ? R"(,{"version":)" : R"({"version":)";
      json::AppendString(out, version);
      out += fmt::format(R"(,"start":{},"end":{}}})", spans[i].begin, spans[next - 1].end);
      i = next;
    }
    out.push_back(']');
  }

  void AppendChunk(std::string& out, Choice& choice) const override {
    AppendAnyChoice(out, choice);
    out.push_back(']');
    if (!options_.continuous_usage) return;
    out += R"(,"usage":)";
    AppendUsage(out, PromptOf(choice).num_tokens, choice.num_tokens);
    out.push_back('}');
  }

  void AppendUsageChunk(std::string& out, const UsageEvent& usage) const override {
    AppendStreamUsage(out, usage, /*created_cache=*/"");
  }

  void AppendChoice(std::string& out, Choice& choice) const override {
    AppendAnyChoice(out, choice);
  }

  void AppendEnd(std::string& out, const UsageEvent& usage) const override {
    AppendStreamUsage(out, usage, /*created_cache=*/"");
    out += R"(,"prompt_logprobs":)";
    AppendPromptResult(out, 0);
    out += R"(,"prompt_token_ids":)";
    AppendTokenIds(out, options_.prompts.front().tokens, options_.return_token_ids);
    out += R"(,"kv_transfer_params":null)";
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeGenerateWriter(AnswerOptions options,
                                                 std::shared_ptr<ResponseWriter> client) {
  return std::make_unique<GenerateWriter>(std::move(options), std::move(client));
}

}  // namespace sluice
