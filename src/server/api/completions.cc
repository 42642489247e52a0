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
  explicit LogprobColumns(const CompletionAnswerOptions& options) : options_(options) {}

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

  const CompletionAnswerOptions& options_;
  std::string offsets_, logprobs_, tokens_, tops_;
};

class CompletionAnswer : public AnswerWriter {
 public:
  CompletionAnswer(CompletionAnswerOptions options, std::shared_ptr<ResponseWriter> writer)
      : options_(std::move(options)),
        writer_(std::move(writer)),
        results_(options_.prompts.size()),
        clock_(options_.identity.clock) {
    choices_.reserve(options_.prompts.size() * options_.n);
    for (size_t i = 0; i < options_.prompts.size() * options_.n; ++i)
      choices_.emplace_back(options_);
    const AnswerIdentity& identity = options_.identity;
    head_ = R"({"id":)";
    json::AppendString(head_, identity.id);
    head_ += fmt::format(R"(,"object":"text_completion","created":{},"model":)", identity.created);
    json::AppendString(head_, identity.model);
    head_ += R"(,"choices":[)";
  }

  void OnPrompt(int prompt, PromptResult result) override {
    cached_tokens_ = result.cached_tokens;
    clock_.OnQueued(result.queue_seconds);
    results_[static_cast<size_t>(prompt)] = std::move(result);
  }

  void OnDelta(ChoiceDelta delta) override {
    Choice& choice = choices_[static_cast<size_t>(delta.choice)];
    const size_t prompt = static_cast<size_t>(delta.choice / options_.n);
    const bool first = !choice.started;
    choice.started = true;
    choice.num_tokens += static_cast<int64_t>(delta.tokens.size());
    completion_tokens_ += static_cast<int64_t>(delta.tokens.size());
    clock_.OnTokens(static_cast<int64_t>(delta.tokens.size()));
    if (options_.drop_output || !options_.detokenize) delta.text.clear();
    if (first && options_.echo && !options_.return_token_ids)
      delta.text = options_.prompts[prompt].text + delta.text;

    LogprobColumns chunk_columns(options_);
    LogprobColumns& columns = options_.stream ? chunk_columns : choice.columns;
    if (options_.logprobs) {
      if (first && options_.echo) AddPrompt(prompt, columns, choice.offset);
      for (size_t i = 0; i < delta.logprobs.size() && !options_.drop_output; ++i) {
        columns.Add(delta.logprobs[i].token, choice.context, &delta.logprobs[i], choice.offset);
        choice.context.push_back(delta.logprobs[i].token);
        if (choice.context.size() > 8)
          choice.context.erase(choice.context.begin(), choice.context.end() - 4);
      }
    }
    if (!options_.stream) {
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
    if (first && (options_.echo || options_.return_token_ids)) {
      AppendTokenIds(event, options_.prompts[prompt].tokens);
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
      AppendUsage(event, static_cast<int64_t>(options_.prompts[prompt].tokens.size()),
                  choice.num_tokens);
      event.push_back('}');
    }
    if (delta.finish && !options_.include_usage) AppendFingerprint(event);
    event.push_back('}');
    event += kEventEnd;
    writer_->WriteChunk(event);
  }

  void OnDone() override {
    if (options_.stream) {
      if (options_.include_usage) {
        std::string event = "data: " + head_ + R"(],"usage":)";
        AppendUsage(event, PromptTokens(), completion_tokens_);
        if (options_.model->config.enable_prompt_tokens_details) {
          event +=
              fmt::format(R"(,"prompt_tokens_details":{{"cached_tokens":{}}})", cached_tokens_);
        }
        event.push_back('}');
        if (!IsTrtllm()) AppendFingerprint(event);
        if (TellsTimes()) {
          event += R"(,"metrics":)";
          clock_.AppendTo(event, /*whole=*/false);
        }
        event.push_back('}');
        event += kEventEnd;
        writer_->WriteChunk(event);
      }
      writer_->WriteChunk(kDoneEvent);
      writer_->EndStream();
      return;
    }
    std::string body = head_;
    for (size_t i = 0; i < choices_.size(); ++i) AppendChoice(body, i);
    if (IsTrtllm()) {
      body += R"(],"usage":)";
      AppendUsage(body, PromptTokens(), completion_tokens_);
      // One prompt has none, several have merged into an empty list.
      body += results_.size() > 1 ? R"(},"prompt_token_ids":[]})" : R"(},"prompt_token_ids":null})";
      return Send(std::move(body));
    }
    body += R"(],"service_tier":null)";
    AppendFingerprint(body);
    body += R"(,"usage":)";
    AppendUsage(body, PromptTokens(), completion_tokens_);
    body += R"(,"prompt_tokens_details":)";
    if (options_.model->config.enable_prompt_tokens_details) {
      body += fmt::format(
          R"({{"cached_tokens":{},"created_cache_tokens":null,"multimodal_tokens":null}})",
          cached_tokens_);
    } else {
      body += "null";
    }
    body +=
        R"(,"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,"metrics":)";
    if (TellsTimes()) {
      clock_.AppendTo(body, /*whole=*/true);
    } else {
      body += "null";
    }
    body.push_back('}');
    Send(std::move(body));
  }

  void OnSilence() override {
    if (!options_.stream) return;
    StartStream();
    writer_->WriteChunk(kSilenceEvent);
  }

  void OnFailure(const ApiError& error) override {
    if (!streaming_) return writer_->Send(ErrorResponse(error, options_.identity.dialect));
    writer_->WriteChunk(ErrorEvent(error));
    writer_->EndStream();
  }

 private:
  struct Choice {
    explicit Choice(const CompletionAnswerOptions& options) : columns(options) {}
    bool started = false;
    std::string text;
    std::vector<int32_t> tokens;
    std::vector<int32_t> context;  // the last tokens before the next one
    LogprobColumns columns;
    int64_t offset = 0;
    int64_t num_tokens = 0;
    ChoiceDelta end;
  };

  void StartStream() {
    if (streaming_) return;
    streaming_ = true;
    HttpResponse response;
    response.content_type = "text/event-stream; charset=utf-8";
    writer_->StartStream(std::move(response));
  }

  // Times of several sequences would be nobody's.
  bool TellsTimes() const { return options_.identity.tell_times && choices_.size() == 1; }
  bool IsTrtllm() const { return options_.identity.dialect == ApiDialect::kTrtllm; }

  void Send(std::string body) {
    HttpResponse response = JsonResponse(std::move(body));
    if (options_.identity.decorate) options_.identity.decorate(response);
    writer_->Send(std::move(response));
  }

  // Ids stand in for text that was not asked for.
  void AppendTrtllmTokens(std::string& out, const std::vector<int32_t>& tokens) const {
    out += R"(,"token_ids":)";
    if (options_.detokenize && !options_.return_token_ids) {
      out += "null";
    } else {
      AppendTokenIds(out, tokens);
    }
  }

  void WriteTrtllmChunk(std::string event, size_t prompt, int64_t num_tokens) {
    event += R"(}],"usage":)";
    if (options_.continuous_usage) {
      AppendUsage(event, static_cast<int64_t>(options_.prompts[prompt].tokens.size()), num_tokens);
      event.push_back('}');
    } else {
      event += "null";
    }
    event.push_back('}');
    event += kEventEnd;
    writer_->WriteChunk(event);
  }

  void AddPrompt(size_t prompt, LogprobColumns& columns, int64_t& offset) {
    const std::vector<int32_t>& tokens = options_.prompts[prompt].tokens;
    const PromptResult& result = results_[prompt];
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool known = i < result.logprobs.size() && result.logprobs[i];
      columns.Add(tokens[i], std::span(tokens).first(i), known ? &*result.logprobs[i] : nullptr,
                  offset);
    }
  }

  // Left out of a stream, null in a whole body where there is none.
  void AppendFingerprint(std::string& out) const {
    const std::string& fingerprint = options_.identity.fingerprint;
    if (fingerprint.empty() && options_.stream) return;
    out += R"(,"system_fingerprint":)";
    if (fingerprint.empty()) {
      out += "null";
    } else {
      json::AppendString(out, fingerprint);
    }
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
      AppendPromptLogprobs(body, *options_.model->tokenizer, options_.prompts[prompt].tokens,
                           results_[prompt], static_cast<size_t>(*options_.prompt_logprobs));
    } else {
      body += "null";
    }
    body += R"(,"prompt_token_ids":)";
    if (options_.return_token_ids) {
      AppendTokenIds(body, options_.prompts[prompt].tokens);
    } else {
      body += "null";
    }
    body += R"(,"routed_experts":null})";
  }

  int64_t PromptTokens() const {
    int64_t total = 0;
    for (const auto& prompt : options_.prompts) total += static_cast<int64_t>(prompt.tokens.size());
    return total;
  }

  const CompletionAnswerOptions options_;
  const std::shared_ptr<ResponseWriter> writer_;
  std::vector<Choice> choices_;
  std::vector<PromptResult> results_;
  std::string head_;  // of the body and of every chunk, up to the choices
  int64_t completion_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  RequestClock clock_;
  bool streaming_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeCompletionAnswer(CompletionAnswerOptions options,
                                                   std::shared_ptr<ResponseWriter> writer) {
  return std::make_unique<CompletionAnswer>(std::move(options), std::move(writer));
}

}  // namespace sluice
