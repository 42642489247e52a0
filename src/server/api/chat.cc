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

class ChatAnswer : public OpenAiAnswer {
 public:
  ChatAnswer(ChatAnswerOptions options, std::shared_ptr<ResponseWriter> writer)
      : OpenAiAnswer(std::move(options.common),
                     options.common.stream ? "chat.completion.chunk" : "chat.completion",
                     options.conversations.size() * static_cast<size_t>(options.common.n),
                     std::move(writer)),
        return_prompt_text_(options.return_prompt_text),
        conversations_(std::move(options.conversations)),
        choices_(conversations_.size() * static_cast<size_t>(options_.n)) {
    for (const auto& conversation : conversations_)
      prompt_tokens_ += static_cast<int64_t>(conversation.prompt_tokens.size());
  }

  void OnPrompt(int prompt, PromptResult result) override {
    Count(prompt, result);
    if (prompt != 0) return;
    Keep(PromptLogprobBytes(result));
    first_result_ = std::move(result);
  }

  void OnDelta(ChoiceDelta delta) override {
    Choice& choice = choices_[static_cast<size_t>(delta.choice)];
    choice.num_tokens += static_cast<int64_t>(delta.tokens.size());
    Count(delta);
    std::string logprobs;
    if (options_.logprobs) AppendLogprobs(logprobs, choice, delta);
    if (!options_.stream) {
      Keep(delta.text.size() + logprobs.size() + kTokenIdBytes * delta.tokens.size());
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
    WriteEvent(std::move(event));
  }

  void OnDone() override {
    if (options_.stream) return EndStream(R"(,"created_cache_tokens":0)");
    std::string body = head_;
    for (size_t i = 0; i < choices_.size(); ++i) AppendChoice(body, i);
    if (IsTrtllm()) {
      body += R"(],"usage":)";
      AppendUsage(body, prompt_tokens_, completion_tokens_);
      body += R"(},"prompt_token_ids":null})";
      return Send(std::move(body));
    }
    AppendWholeUsage(body, R"(,"created_cache_tokens":0)");
    body += R"(,"prompt_logprobs":)";
    if (options_.prompt_logprobs) {
      AppendPromptLogprobs(body, *options_.model->tokenizer, conversations_[0].prompt_tokens,
                           first_result_, static_cast<size_t>(*options_.prompt_logprobs));
    } else {
      body += "null";
    }
    AppendPrompt(body);
    SendWhole(std::move(body));
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
    return conversations_[choice / static_cast<size_t>(options_.n)];
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
      WriteEvent(std::move(event));
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (ConversationOf(i).echo.empty()) continue;
      std::string event = "data: " + head_;
      event += fmt::format(R"({{"index":{},"delta":{{"content":)", i);
      json::AppendString(event, ConversationOf(i).echo);
      event += R"(},"logprobs":null,"finish_reason":null}])";
      AppendChunkUsage(event, 0);
      WriteEvent(std::move(event));
    }
  }

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
    const bool single = conversations_.size() == 1;
    if (options_.return_token_ids && single) {
      AppendTokenIds(out, conversations_[0].prompt_tokens);
    } else {
      out += "null";
    }
    out += R"(,"prompt_text":)";
    if (return_prompt_text_ && single) {
      json::AppendString(out, conversations_[0].prompt_text);
    } else {
      out += "null";
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

  const bool return_prompt_text_;
  const std::vector<ChatAnswerOptions::Conversation> conversations_;
  std::vector<Choice> choices_;
  PromptResult first_result_;  // of the first conversation
  bool roles_sent_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeChatAnswer(ChatAnswerOptions options,
                                             std::shared_ptr<ResponseWriter> writer) {
  return std::make_unique<ChatAnswer>(std::move(options), std::move(writer));
}

}  // namespace sluice
