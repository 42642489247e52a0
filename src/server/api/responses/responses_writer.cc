#include "server/api/responses/responses_writer.h"

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/answer/kept_memory.h"
#include "server/api/answer/logprob_json.h"
#include "server/api/common/answer_json.h"
#include "server/api/common/api_error.h"
#include "server/api/responses/response_items.h"
#include "server/api/store/response_events.h"

namespace sluice {
namespace {

using Kind = OutputItem::Kind;

// Approximate number of bytes of a token's logprob in JSON.
constexpr size_t kLogprobBytes = 100;

std::string_view PrefixOf(Kind kind) {
  switch (kind) {
    case Kind::kMessage: return "msg_";
    case Kind::kReasoning: return "rs_";
    case Kind::kCall: return "fc_";
  }
  return "";
}

std::string_view StatusOf(const FinishEvent& finish) {
  switch (finish.reason) {
    case FinishReason::kLength: return "incomplete";
    case FinishReason::kAbort: return "cancelled";
    case FinishReason::kError: return "failed";
    case FinishReason::kStop: break;
  }
  return "completed";
}

std::string UsageJson(const UsageEvent& usage, const std::string& simulated_devices) {
  std::string text = fmt::format(
      R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{},"cache_write_tokens":0,)"
      R"("input_tokens_per_turn":[],"cached_tokens_per_turn":[]}},"output_tokens":{},)"
      R"("output_tokens_details":{{"reasoning_tokens":{},"tool_output_tokens":0,)"
      R"("output_tokens_per_turn":[],"tool_output_tokens_per_turn":[]}},"total_tokens":{})",
      usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
      usage.reasoning_tokens.value_or(0), usage.prompt_tokens + usage.completion_tokens);
  if (!simulated_devices.empty()) {
    text += R"(,"simulated":)";
    json::AppendString(text, simulated_devices);
  }
  text.push_back('}');
  return text;
}

class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(ResponsesAnswer answer, AnswerOptions options,
                  std::shared_ptr<ResponseWriter> client)
      : answer_(std::move(answer)),
        options_(std::move(options)),
        client_(std::move(client)),
        events_([this](int64_t, std::string_view event) { client_->WriteChunk(event); }),
        pending_(*options_.model->tokenizer, options_.prompts[0].tail) {}

  void Write(AnswerStep step) override {
    for (AnswerEvent& event : step)
      std::visit([this](auto& known) { Take(std::move(known)); }, event);
  }

  std::optional<ApiError> Refusal() const override { return kept_.Refusal(); }

 private:
  void Take(const PromptEvent&) {
    if (options_.stream) Begin();
  }

  void Take(const TokensEvent&) {}

  // A break between messages of the model starts a new item.
  void Take(const TextEvent& event) {
    if (event.is_break) Close();
    AddLogprobs(event.logprobs);
    if (!event.is_break) Add(Kind::kMessage, event.text);
  }
  void Take(const ReasoningEvent& event) {
    event.is_break ? Close() : Add(Kind::kReasoning, event.text);
  }

  void Take(ToolCallEvent event) {
    if (!event.name.empty()) {
      Close();
      Open(Kind::kCall, std::move(event.id), std::move(event.name));
    }
    if (is_open_ && items_.back().kind == Kind::kCall) Grow(event.arguments);
  }

  void Take(FinishEvent event) { finish_ = std::move(event); }

  void Take(const KeepAliveEvent&) {
    if (!options_.stream) return;
    Begin();
    client_->WriteChunk(kKeepAliveEvent);
  }

  void Take(const UsageEvent& usage) {
    if (options_.stream) Begin();
    const std::string_view status = finish_ ? StatusOf(*finish_) : "completed";
    Close(status == "completed" ? "completed" : "incomplete");
    AttachLogprobs();
    std::string body =
        answer_.frame.Body(status, Output(), UsageJson(usage, options_.model->config.simulated));
    if (usage.receipt != nullptr) {
      body.pop_back();
      AppendReceipt(body, usage);
      body.push_back('}');
    }
    Keep(body, /*is_over=*/true);
    if (options_.stream) {
      events_.Response(LastEventType(status), body);
      return client_->EndStream();
    }
    HttpResponse response = JsonResponse(body);
    if (options_.add_headers) options_.add_headers(response);
    client_->Send(std::move(response));
  }

  void Take(const ErrorEvent& event) {
    if (!has_begun_)
      return client_->Send(ErrorResponse(event.error, options_.model->config.dialect));
    std::string error = R"({"code":"server_error","message":)";
    json::AppendString(error, event.error.message);
    error.push_back('}');
    Close("incomplete");
    const std::string body = answer_.frame.Body("failed", Output(), "null", error);
    Keep(body, /*is_over=*/true);
    events_.Response(LastEventType("failed"), body);
    client_->EndStream();
  }

  // Sends the first events of a stream.
  void Begin() {
    if (has_begun_) return;
    client_->StartStream(EventStreamHead());
    has_begun_ = true;
    const std::string body = answer_.frame.Body("in_progress", "", "null");
    Keep(body, /*is_over=*/false);
    events_.Response("response.created", body);
    events_.Response("response.in_progress", body);
  }

  void Add(Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (!is_open_ || items_.back().kind != kind) {
      Close();
      Open(kind);
    }
    Grow(text);
  }

  void Open(Kind kind, std::string call_id = "", std::string name = "") {
    if (options_.stream) Begin();
    OutputItem item;
    item.kind = kind;
    item.id = NewResponseId(PrefixOf(kind));
    item.call_id = std::move(call_id);
    if (const auto tool = answer_.namespaced_tools.find(name);
        tool != answer_.namespaced_tools.end()) {
      item.space = tool->second.space;
      name = tool->second.name;
    }
    item.name = std::move(name);
    kept_.Add(2 * kLogprobBytes + item.call_id.size() + item.name.size() + item.space.size());
    items_.push_back(std::move(item));
    is_open_ = true;
    if (options_.stream) events_.Open(items_.back());
  }

  void Grow(std::string_view text) {
    OutputItem& item = items_.back();
    kept_.Add(text.size());
    item.text += text;
    if (!options_.stream || text.empty()) return;
    const bool shows = item.kind == Kind::kMessage;
    events_.Delta(item, text, shows ? std::exchange(delta_logprobs_, "") : "");
  }

  // `status`: the status of the item that ends. Only the last item of an answer can be incomplete.
  void Close(std::string_view status = "completed") {
    if (!std::exchange(is_open_, false)) return;
    items_.back().status = status;
    AttachLogprobs();
    if (options_.stream) events_.Close(items_.back());
  }

  // Adds the logprobs of the message's tokens to the message's item.
  void AttachLogprobs() {
    if (!options_.logprobs || items_.empty() || items_.back().kind != Kind::kMessage) return;
    OutputItem& item = items_.back();
    item.shows_logprobs = true;
    if (!item.logprobs.empty() && !logprobs_.empty()) item.logprobs.push_back(',');
    item.logprobs += std::exchange(logprobs_, "");
  }

  // Adds to `logprobs_` and, without the tokens' bytes, to the logprobs of the next delta.
  void AddLogprobs(std::span<const TokenLogprobs> tokens) {
    if (!options_.logprobs || tokens.empty()) return;
    kept_.Add(tokens.size() * (kLogprobBytes * (1 + static_cast<size_t>(*options_.logprobs))));
    LogprobStyle style{*options_.model->tokenizer, *options_.logprobs, options_.tokens_as_ids};
    PendingTokens pending = pending_;
    AppendLogprobElements(logprobs_, style, tokens, pending_);
    if (!options_.stream) return;
    style.shows_bytes = false;
    AppendLogprobElements(delta_logprobs_, style, tokens, pending);
  }

  void Keep(const std::string& body, bool is_over) const {
    if (!answer_.keep) return;
    std::vector<std::string> ids;
    for (const OutputItem& item : items_) ids.push_back(item.id);
    answer_.keep(body, std::move(ids), is_over);
  }

  // Returns the JSON of the items so far, without brackets.
  std::string Output() const {
    std::string out;
    for (const OutputItem& item : items_) {
      if (!out.empty()) out.push_back(',');
      AppendOutputItem(out, item);
    }
    return out;
  }

  const ResponsesAnswer answer_;
  const AnswerOptions options_;
  const std::shared_ptr<ResponseWriter> client_;
  // Keeps the whole answer, because the last event of a stream repeats it.
  KeptMemory kept_{options_, /*keeps_streams=*/true};
  ResponseEvents events_;
  std::vector<OutputItem> items_;
  bool is_open_ = false;    // whether the last item is open
  bool has_begun_ = false;  // whether the stream has begun
  std::optional<FinishEvent> finish_;
  std::string logprobs_, delta_logprobs_;  // JSON list elements for tokens not sent yet
  PendingTokens pending_;
};

}  // namespace

ResponseFrame::ResponseFrame(std::string response_id, int64_t created, const std::string& model,
                             const json::Value& shown, const SamplingParams& sampling)
    : id(std::move(response_id)), created_at(created) {
  const auto append = [&shown](std::string& out, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      const json::Value* value = shown.Find(name);
      out += fmt::format(R"("{}":)", name);
      json::Append(out, value == nullptr ? json::Value() : *value);
      out.push_back(',');
    }
  };
  const auto number = [](std::string& out, std::string_view name, double value) {
    out += fmt::format(R"("{}":)", name);
    json::AppendDouble(out, value);
    out.push_back(',');
  };
  append(before_output, {"instructions", "metadata"});
  before_output += R"("model":)";
  json::AppendString(before_output, model);
  before_output += R"(,"object":"response",)";
  append(before_status, {"parallel_tool_calls"});
  number(before_status, "temperature", sampling.temperature);
  append(before_status, {"tool_choice", "tools"});
  number(before_status, "top_p", sampling.top_p);
  append(before_status, {"background"});
  before_status += fmt::format(R"("max_output_tokens":{},)", sampling.max_tokens);
  append(before_status,
         {"max_tool_calls", "previous_response_id", "prompt", "reasoning", "service_tier"});
  append(before_usage, {"text"});
  before_usage += fmt::format(R"("top_logprobs":{},)",
                              sampling.logprobs ? std::to_string(*sampling.logprobs) : "null");
  append(before_usage, {"truncation"});
  append(after_usage, {"user"});
  number(after_usage, "presence_penalty", sampling.presence_penalty);
  number(after_usage, "frequency_penalty", sampling.frequency_penalty);
  after_usage += R"("kv_transfer_params":null,"ec_transfer_params":null,"input_messages":null,)"
                 R"("output_messages":null)";
}

size_t ResponseFrame::bytes() const {
  return before_output.size() + before_status.size() + before_usage.size() + after_usage.size();
}

std::string ResponseFrame::Body(std::string_view status, std::string_view output,
                                std::string_view usage, std::string_view error) const {
  std::string body = R"({"id":)";
  body.reserve(bytes() + output.size() + usage.size() + error.size() + 256);
  json::AppendString(body, id);
  body += fmt::format(R"(,"created_at":{},"incomplete_details":{},)", created_at,
                      status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null");
  if (!error.empty()) body += fmt::format(R"("error":{},)", error);
  body += before_output;
  body += R"("output":[)";
  body += output;
  body += "],";
  body += before_status;
  body += fmt::format(R"("status":"{}",)", status);
  body += before_usage;
  body += fmt::format(R"("usage":{},)", usage);
  body += after_usage;
  body.push_back('}');
  return body;
}

std::unique_ptr<AnswerWriter> MakeResponsesWriter(ResponsesAnswer answer, AnswerOptions options,
                                                  std::shared_ptr<ResponseWriter> client) {
  return std::make_unique<ResponsesWriter>(std::move(answer), std::move(options),
                                           std::move(client));
}

}  // namespace sluice
