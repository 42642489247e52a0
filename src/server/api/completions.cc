#include "server/api/completions.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

// The four parallel lists of a completion's logprobs.
class LogprobColumns {
 public:
  explicit LogprobColumns(const AnswerOptions& options) : options_(options) {}

  // `offset` runs over the texts of all tokens of a choice.
  void Add(int32_t token, std::span<const int32_t> context, const TokenLogprobs* logprobs,
           int64_t& offset) {
    const std::string text = Text(token, context);
    Separate();
    offsets_ += std::to_string(offset);
    offset += static_cast<int64_t>(CountCharacters(text));
    json::AppendString(tokens_, text);
    if (logprobs == nullptr) {
      logprobs_ += "null";
      tops_ += "null";
      return;
    }
    AppendLogprob(logprobs_, logprobs->logprob);
    // Texts may coincide: the key stays where it was, the value is the last one.
    std::vector<std::pair<std::string, float>> entries;
    std::unordered_map<std::string, size_t> places;
    const size_t count = static_cast<size_t>(options_.logprobs.value_or(0)) + 1;
    for (const auto& [id, logprob] : ChosenAndTop(*logprobs, count)) {
      std::string key = id == token ? text : Text(id, context);
      const auto [place, added] = places.emplace(key, entries.size());
      if (added) {
        entries.emplace_back(std::move(key), logprob);
      } else {
        entries[place->second].second = logprob;
      }
    }
    tops_.push_back('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) tops_.push_back(',');
      json::AppendString(tops_, entries[i].first);
      tops_.push_back(':');
      AppendLogprob(tops_, entries[i].second);
    }
    tops_.push_back('}');
  }

  size_t bytes() const {
    return offsets_.size() + logprobs_.size() + tokens_.size() + tops_.size();
  }

  void AppendTo(std::string& out) const {
    out.append(R"({"text_offset":[)")
        .append(offsets_)
        .append(R"(],"token_logprobs":[)")
        .append(logprobs_);
    out.append(R"(],"tokens":[)")
        .append(tokens_)
        .append(R"(],"top_logprobs":[)")
        .append(tops_)
        .append("]}");
  }

 private:
  std::string Text(int32_t token, std::span<const int32_t> context) const {
    return options_.tokens_as_ids ? fmt::format("token_id:{}", token)
                                  : TokenText(*options_.model->tokenizer, token, context);
  }
  void Separate() {
    if (!offsets_.empty()) {
      for (std::string* column : {&offsets_, &logprobs_, &tokens_, &tops_}) column->push_back(',');
    }
  }

  const AnswerOptions& options_;
  std::string offsets_, logprobs_, tokens_, tops_;
};

class CompletionAnswer : public OpenAiAnswer {
 public:
  CompletionAnswer(CompletionAnswerOptions options, std::shared_ptr<ResponseWriter> writer)
      : OpenAiAnswer(std::move(options.common), "text_completion",
                     options.prompts.size() * static_cast<size_t>(options.common.n),
                     std::move(writer)),
        echo_(options.echo),
        drop_output_(options.drop_output),
        detokenize_(options.detokenize),
        prompts_(std::move(options.prompts)),
        choices_(prompts_.size() * static_cast<size_t>(options_.n), Choice(options_)),
        results_(prompts_.size()) {
    for (const auto& prompt : prompts_)
      prompt_tokens_ += static_cast<int64_t>(prompt.tokens.size());
  }

  void OnPrompt(int prompt, PromptResult result) override {
    Count(prompt, result);
    Keep(PromptLogprobBytes(result));
    results_[static_cast<size_t>(prompt)] = std::move(result);
  }

  void OnDelta(ChoiceDelta delta) override {
    Choice& choice = choices_[static_cast<size_t>(delta.choice)];
    const size_t prompt = static_cast<size_t>(delta.choice / options_.n);
    const bool first = !choice.started;
    choice.started = true;
    choice.num_tokens += static_cast<int64_t>(delta.tokens.size());
    Count(delta);
    if (drop_output_ || !detokenize_) delta.text.clear();
    if (first && echo_ && !options_.return_token_ids)
      delta.text = prompts_[prompt].text + delta.text;

    LogprobColumns chunk_columns(options_);
    LogprobColumns& columns = options_.stream ? chunk_columns : choice.columns;
    const size_t bytes_before = columns.bytes();
    if (options_.logprobs) {
      if (first && echo_) AddPrompt(prompt, columns, choice.offset);
      for (size_t i = 0; i < delta.logprobs.size() && !drop_output_; ++i) {
        columns.Add(delta.logprobs[i].token, choice.context, &delta.logprobs[i], choice.offset);
        choice.context.push_back(delta.logprobs[i].token);
        if (choice.context.size() > 8)
          choice.context.erase(choice.context.begin(), choice.context.end() - 4);
      }
    }
    if (!options_.stream) {
      Keep(delta.text.size() + kTokenIdBytes * delta.tokens.size() + columns.bytes() -
           bytes_before);
      if (first) KeepPrompt(prompt);
      choice.text += delta.text;
      choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
      if (delta.finish) {
        delta.tokens.clear();
        choice.end = std::move(delta);
      }
      return;
    }
    StartStream();
    std::string event = "data: " + head_;
    event += fmt::format(R"({{"index":{},"text":)", delta.choice);
    json::AppendString(event, delta.text);
    if (IsTrtllm()) AppendTrtllmTokens(event, delta.tokens);
    event += R"(,"logprobs":)";
    if (options_.logprobs) {
      columns.AppendTo(event);
    } else {
      event += "null";
    }
    event.push_back(',');
    AppendFinish(event, delta);
    if (IsTrtllm()) return WriteTrtllmChunk(std::move(event), prompt, choice.num_tokens);
    event += R"(,"prompt_token_ids":)";
    if (first && (echo_ || options_.return_token_ids)) {
      AppendTokenIds(event, prompts_[prompt].tokens);
    } else {
      event += "null";
    }
    event += R"(,"token_ids":)";
    if (options_.return_token_ids) {
      AppendTokenIds(event, delta.tokens);
    } else {
      event += "null";
    }
    event += "}]";
    if (options_.continuous_usage) {
      event += R"(,"usage":)";
      AppendUsage(event, static_cast<int64_t>(prompts_[prompt].tokens.size()), choice.num_tokens);
      event.push_back('}');
    }
    if (delta.finish && !options_.include_usage) AppendFingerprint(event);
    WriteEvent(std::move(event));
  }

  void OnDone() override {
    if (options_.stream) return EndStream("");
    std::string body = head_;
    for (size_t i = 0; i < choices_.size(); ++i) AppendChoice(body, i);
    if (IsTrtllm()) {
      body += R"(],"usage":)";
      AppendUsage(body, prompt_tokens_, completion_tokens_);
      // One prompt has none, several have merged into an empty list.
      body += results_.size() > 1 ? R"(},"prompt_token_ids":[]})" : R"(},"prompt_token_ids":null})";
      return Send(std::move(body));
    }
    AppendWholeUsage(body, R"(,"created_cache_tokens":null)");
    SendWhole(std::move(body));
  }

 private:
  struct Choice {
    explicit Choice(const AnswerOptions& options) : columns(options) {}
    bool started = false;
    std::string text;
    std::vector<int32_t> tokens;
    std::vector<int32_t> context;  // the last tokens before the next one
    LogprobColumns columns;
    int64_t offset = 0;
    int64_t num_tokens = 0;
    ChoiceDelta end;
  };

  // Ids stand in for text that was not asked for.
  void AppendTrtllmTokens(std::string& out, const std::vector<int32_t>& tokens) const {
    out += R"(,"token_ids":)";
    if (detokenize_ && !options_.return_token_ids) {
      out += "null";
    } else {
      AppendTokenIds(out, tokens);
    }
  }

  void WriteTrtllmChunk(std::string event, size_t prompt, int64_t num_tokens) {
    event += R"(}],"usage":)";
    if (options_.continuous_usage) {
      AppendUsage(event, static_cast<int64_t>(prompts_[prompt].tokens.size()), num_tokens);
      event.push_back('}');
    } else {
      event += "null";
    }
    WriteEvent(std::move(event));
  }

  void AddPrompt(size_t prompt, LogprobColumns& columns, int64_t& offset) {
    const std::vector<int32_t>& tokens = prompts_[prompt].tokens;
    const PromptResult& result = results_[prompt];
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool known = i < result.logprobs.size() && result.logprobs[i];
      columns.Add(tokens[i], std::span(tokens).first(i), known ? &*result.logprobs[i] : nullptr,
                  offset);
    }
  }

  // What is said of the prompt in each of its choices.
  void KeepPrompt(size_t prompt) {
    if (options_.return_token_ids) Keep(kTokenIdBytes * prompts_[prompt].tokens.size());
    if (options_.prompt_logprobs) Keep(PromptLogprobBytes(results_[prompt]));
  }

  void AppendChoice(std::string& body, size_t index) {
    const Choice& choice = choices_[index];
    const size_t prompt = index / static_cast<size_t>(options_.n);
    if (index > 0) body.push_back(',');
    body += fmt::format(R"({{"index":{},"text":)", index);
    json::AppendString(body, choice.text);
    if (IsTrtllm()) AppendTrtllmTokens(body, choice.tokens);
    body += R"(,"logprobs":)";
    if (options_.logprobs) {
      choice.columns.AppendTo(body);
    } else {
      body += "null";
    }
    if (IsTrtllm()) body += R"(,"context_logits":null)";
    body.push_back(',');
    AppendFinish(body, choice.end);
    if (IsTrtllm()) {
      body += R"(,"disaggregated_params":null})";
      return;
    }
    body += R"(,"token_ids":)";
    if (options_.return_token_ids) {
      AppendTokenIds(body, choice.tokens);
    } else {
      body += "null";
    }
    body += R"(,"prompt_logprobs":)";
    if (options_.prompt_logprobs) {
      AppendPromptLogprobs(body, *options_.model->tokenizer, prompts_[prompt].tokens,
                           results_[prompt], static_cast<size_t>(*options_.prompt_logprobs));
    } else {
      body += "null";
    }
    body += R"(,"prompt_token_ids":)";
    if (options_.return_token_ids) {
      AppendTokenIds(body, prompts_[prompt].tokens);
    } else {
      body += "null";
    }
    body += R"(,"routed_experts":null})";
  }

  const bool echo_, drop_output_, detokenize_;
  const std::vector<CompletionAnswerOptions::PromptInfo> prompts_;
  std::vector<Choice> choices_;
  std::vector<PromptResult> results_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeCompletionAnswer(CompletionAnswerOptions options,
                                                   std::shared_ptr<ResponseWriter> writer) {
  return std::make_unique<CompletionAnswer>(std::move(options), std::move(writer));
}

}  // namespace sluice
