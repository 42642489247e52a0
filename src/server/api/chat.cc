#include "server/api/chat.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"

namespace sluice {
namespace {

void AppendBytes(std::string& out, std::string_view text) {
  out += R"("bytes":[)";
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0) out.push_back(',');
    out += std::to_string(static_cast<unsigned char>(text[i]));
  }
  out.push_back(']');
}

class ChatAnswer : public AnswerWriter {
 public:
  ChatAnswer(ChatAnswerOptions options, std::shared_ptr<ResponseWriter> writer)
      : options_(std::move(options)),
        writer_(std::move(writer)),
        choices_(options_.conversations.size() * static_cast<size_t>(options_.n)),
        clock_(options_.identity.clock) {
    for (const auto& conversation : options_.conversations)
      prompt_tokens_ += static_cast<int64_t>(conversation.prompt_tokens.size());
    const AnswerIdentity& identity = options_.identity;
    head_ = R"({"id":)";
    json::AppendString(head_, identity.id);
    head_ += fmt::format(R"(,"object":"chat.completion{}","created":{},"model":)",
                         options_.stream ? ".chunk" : "", identity.created);
    json::AppendString(head_, identity.model);
    head_ += R"(,"choices":[)";
  }

  void OnPrompt(int, PromptResult result) override {
    clock_.OnQueued(result.queue_seconds);
    result_ = std::move(result);
  }

  void OnDelta(ChoiceDelta delta) override {
    Choice& choice = choices_[static_cast<size_t>(delta.choice)];
    choice.num_tokens += static_cast<int64_t>(delta.tokens.size());
    completion_tokens_ += static_cast<int64_t>(delta.tokens.size());
    clock_.OnTokens(static_cast<int64_t>(delta.tokens.size()));
    std::string logprobs;
    if (options_.logprobs) AppendLogprobs(logprobs, choice, delta);
    if (!options_.stream) {
      choice.text += delta.text;
      if (!logprobs.empty() && !choice.logprobs.empty()) choice.logprobs.push_back(',');
      choice.logprobs += logprobs;
      choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
      if (delta.finish) choice.end = std::move(delta);
      return;
    }
    StartStream();
    SendRoles();
    std::string event = "data: " + head_;
    event += fmt::format(R"({{"index":{},"delta":{{"content":)", delta.choice);
    json::AppendString(event, delta.text);
    event += IsTrtllm()
                 ? R"(,"reasoning_content":null,"reasoning":null,"tool_calls":[]},"logprobs":)"
                 : R"(},"logprobs":)";
    if (options_.logprobs) {
      event.append(R"({"content":[)").append(logprobs).append("]}");
    } else {
      event += "null";
    }
    event.push_back(',');
    if (delta.finish || IsTrtllm()) {
      AppendFinish(event, delta);
    } else {
      event += R"("finish_reason":null)";
    }
    if (!IsTrtllm()) {
      event += R"(,"token_ids":)";
      if (options_.return_token_ids) {
        AppendTokenIds(event, delta.tokens);
      } else {
        event += "null";
      }
    }
    event += "}]";
    AppendChunkUsage(event, choice.num_tokens);
    if (delta.finish && !options_.include_usage && !IsTrtllm()) AppendFingerprint(event);
    event.push_back('}');
    event += kEventEnd;
    writer_->WriteChunk(event);
  }

  void OnDone() override {
    const bool details = options_.model->config.enable_prompt_tokens_details;
    if (options_.stream) {
      if (options_.include_usage) {
        std::string event = "data: " + head_ + R"(],"usage":)";
        AppendUsage(event, prompt_tokens_, completion_tokens_);
        if (details) {
          event += fmt::format(
              R"(,"prompt_tokens_details":{{"cached_tokens":{},"created_cache_tokens":0}})",
              result_.cached_tokens);
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
      AppendUsage(body, prompt_tokens_, completion_tokens_);
      body += R"(},"prompt_token_ids":null})";
      return Send(std::move(body));
    }
    body += R"(],"service_tier":null)";
    AppendFingerprint(body);
    body += R"(,"usage":)";
    AppendUsage(body, prompt_tokens_, completion_tokens_);
    body += R"(,"prompt_tokens_details":)";
    if (details) {
      body +=
          fmt::format(R"({{"cached_tokens":{},"created_cache_tokens":0,"multimodal_tokens":null}})",
                      result_.cached_tokens);
    } else {
      body += "null";
    }
    body += R"(,"completion_tokens_details":null},"prompt_logprobs":)";
    if (options_.prompt_logprobs) {
      AppendPromptLogprobs(body, *options_.model->tokenizer,
                           options_.conversations[0].prompt_tokens, result_,
                           static_cast<size_t>(*options_.prompt_logprobs));
    } else {
      body += "null";
    }
    AppendPrompt(body);
    body += R"(,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":)";
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
    std::string text;
    std::string logprobs;
    std::vector<int32_t> tokens;
    std::vector<int32_t> context;  // the last tokens before the next one
    int64_t num_tokens = 0;
    ChoiceDelta end;
  };

  const ChatAnswerOptions::Conversation& ConversationOf(size_t choice) const {
    return options_.conversations[choice / static_cast<size_t>(options_.n)];
  }

  void Send(std::string body) {
    HttpResponse response = JsonResponse(std::move(body));
    if (options_.identity.decorate) options_.identity.decorate(response);
    writer_->Send(std::move(response));
  }

  void StartStream() {
    if (streaming_) return;
    streaming_ = true;
    HttpResponse response;
    response.content_type = "text/event-stream; charset=utf-8";
    writer_->StartStream(std::move(response));
  }

  // With the first tokens of any choice come the roles of all, then what is echoed.
  void SendRoles() {
    if (roles_sent_) return;
    roles_sent_ = true;
    for (size_t i = 0; i < choices_.size(); ++i) {
      std::string event = "data: " + head_;
      event += fmt::format(R"({{"index":{},"delta":{{"role":)", i);
      json::AppendString(event, ConversationOf(i).role);
      event += IsTrtllm()
                   ? R"(,"content":null,"reasoning_content":null,"reasoning":null,)"
                     R"("tool_calls":[]},"logprobs":null,"finish_reason":null,"stop_reason":null}])"
                   : R"(,"content":""},"logprobs":null,"finish_reason":null}])";
      AppendChunkUsage(event, 0);
      if (!IsTrtllm()) AppendPrompt(event);
      event.push_back('}');
      event += kEventEnd;
      writer_->WriteChunk(event);
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (ConversationOf(i).echo.empty()) continue;
      std::string event = "data: " + head_;
      event += fmt::format(R"({{"index":{},"delta":{{"content":)", i);
      json::AppendString(event, ConversationOf(i).echo);
      event += R"(},"logprobs":null,"finish_reason":null}])";
      AppendChunkUsage(event, 0);
      event.push_back('}');
      event += kEventEnd;
      writer_->WriteChunk(event);
    }
  }

  // Times of several sequences would be nobody's.
  bool TellsTimes() const { return options_.identity.tell_times && choices_.size() == 1; }
  bool IsTrtllm() const { return options_.identity.dialect == ApiDialect::kTrtllm; }

  void AppendChunkUsage(std::string& event, int64_t completion_tokens) const {
    if (!options_.continuous_usage) {
      if (IsTrtllm()) event += R"(,"usage":null)";
      return;
    }
    event += R"(,"usage":)";
    AppendUsage(event, prompt_tokens_, completion_tokens);
    event += IsTrtllm() ? "}" : R"(,"completion_tokens_details":null})";
  }

  void AppendPrompt(std::string& out) const {
    out += R"(,"prompt_token_ids":)";
    const bool single = options_.conversations.size() == 1;
    if (options_.return_token_ids && single) {
      AppendTokenIds(out, options_.conversations[0].prompt_tokens);
    } else {
      out += "null";
    }
    out += R"(,"prompt_text":)";
    if (options_.return_prompt_text && single) {
      json::AppendString(out, options_.conversations[0].prompt_text);
    } else {
      out += "null";
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

  void AppendLogprobs(std::string& out, Choice& choice, const ChoiceDelta& delta) const {
    const Tokenizer& tokenizer = *options_.model->tokenizer;
    for (const TokenLogprobs& logprobs : delta.logprobs) {
      if (!out.empty()) out.push_back(',');
      const auto append = [&](int32_t token, float logprob, bool is_top) {
        const std::string text = TokenText(tokenizer, token, choice.context);
        const std::string shown = options_.tokens_as_ids ? fmt::format("token_id:{}", token) : text;
        out += R"({"token":)";
        json::AppendString(out, shown);
        out += R"(,"logprob":)";
        AppendLogprob(out, logprob);
        out.push_back(',');
        AppendBytes(out, is_top ? shown : text);
      };
      append(logprobs.token, logprobs.logprob, false);
      out += R"(,"top_logprobs":[)";
      bool first = true;
      for (const auto& [token, logprob] :
           ChosenAndTop(logprobs, static_cast<size_t>(*options_.logprobs))) {
        if (!first) out.push_back(',');
        first = false;
        append(token, logprob, true);
        out.push_back('}');
      }
      out += "]}";
      choice.context.push_back(logprobs.token);
      if (choice.context.size() > 8)
        choice.context.erase(choice.context.begin(), choice.context.end() - 4);
    }
  }

  void AppendChoice(std::string& body, size_t index) const {
    const Choice& choice = choices_[index];
    if (index > 0) body.push_back(',');
    body += fmt::format(R"({{"index":{},"message":{{"role":)", index);
    json::AppendString(body, ConversationOf(index).role);
    body += R"(,"content":)";
    json::AppendString(body, ConversationOf(index).echo + choice.text);
    body += IsTrtllm()
                ? R"(,"reasoning_content":null,"reasoning":null,"tool_calls":[]},"logprobs":)"
                : R"(,"refusal":null,"annotations":null,"audio":null,"function_call":null,)"
                  R"("reasoning":null},"logprobs":)";
    if (options_.logprobs) {
      body.append(R"({"content":[)").append(choice.logprobs).append("]}");
    } else {
      body += "null";
    }
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
    body += R"(,"routed_experts":null})";
  }

  const ChatAnswerOptions options_;
  const std::shared_ptr<ResponseWriter> writer_;
  std::vector<Choice> choices_;
  PromptResult result_;
  std::string head_;  // of the body and of every chunk, up to the choices
  int64_t prompt_tokens_ = 0, completion_tokens_ = 0;
  RequestClock clock_;
  bool streaming_ = false, roles_sent_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeChatAnswer(ChatAnswerOptions options,
                                             std::shared_ptr<ResponseWriter> writer) {
  return std::make_unique<ChatAnswer>(std::move(options), std::move(writer));
}

}  // namespace sluice
