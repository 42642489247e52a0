// Writes the answer of POST /v1/messages in the shape of Anthropic's API. An answer is a list of
// blocks; a stream sends one block after another.
#include <utility>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"
#include "server/api/answer/kept_memory.h"
#include "server/api/common/answer_json.h"
#include "server/api/common/api_error.h"

namespace sluice {
namespace {

// Returns the JSON of stop_reason; "null" if the answer was not ended by the model or a limit.
std::string_view StopReason(const FinishEvent& finish, bool has_called) {
  if (std::holds_alternative<std::string>(finish.cause)) return R"("stop_sequence")";
  switch (finish.reason) {
    case FinishReason::kStop: return has_called ? R"("tool_use")" : R"("end_turn")";
    case FinishReason::kLength: return R"("max_tokens")";
    default: return "null";
  }
}

// Clients read the input of a call as an object. If the input was cut off or is not an object, an
// empty object is sent instead of incomplete arguments. In a stream, the arguments have already
// been sent as they were.
std::string_view InputOf(std::string_view arguments) {
  const Result<json::Value> parsed = json::Parse(arguments);
  return parsed && parsed->is_object() ? arguments : "{}";
}

class MessagesWriter : public AnswerWriter {
 public:
  MessagesWriter(AnswerOptions options, std::shared_ptr<ResponseWriter> client)
      : options_(std::move(options)), client_(std::move(client)) {}

  void Write(AnswerStep step) override {
    for (AnswerEvent& event : step)
      std::visit([this](auto& known) { Take(std::move(known)); }, event);
    if (!out_.empty()) client_->WriteChunk(std::exchange(out_, ""));
    if (over_ && options_.stream) client_->EndStream();
  }

  std::optional<ApiError> Refusal() const override { return kept_.Refusal(); }

 private:
  enum class Kind { kText, kThinking, kToolUse };
  struct Block {
    Kind kind;
    int call = 0;  // for kToolUse, like the next two members
    std::string id = {};
    std::string name = {};
    std::string text = {};  // used for an answer that is not streamed
  };

  void Take(const PromptEvent&) {}
  void Take(const TokensEvent&) {}

  void Take(const TextEvent& event) {
    if (!event.text.empty()) Append(BlockOf({Kind::kText}), event.text);
  }
  void Take(const ReasoningEvent& event) {
    if (!event.text.empty()) Append(BlockOf({Kind::kThinking}), event.text);
  }
  void Take(ToolCallEvent event) {
    has_called_ = true;
    Block& block =
        BlockOf({Kind::kToolUse, event.call, std::move(event.id), std::move(event.name)});
    if (!event.arguments.empty()) Append(block, event.arguments);
  }

  void Take(FinishEvent event) { finish_ = std::move(event); }

  void Take(const KeepAliveEvent&) {
    if (!options_.stream) return;
    Open();
    AppendEvent("ping", "");
  }

  void Take(const UsageEvent& usage) {
    over_ = true;
    if (!options_.stream) return SendWhole(usage);
    Open();
    CloseBlock();
    std::string delta = fmt::format(R"(,"delta":{{"stop_reason":{},"stop_sequence":)",
                                    StopReason(finish_, has_called_));
    if (const auto* text = std::get_if<std::string>(&finish_.cause)) {
      json::AppendString(delta, *text);
    } else {
      delta += "null";
    }
    AppendEvent("message_delta", fmt::format(R"({}}},"usage":{})", delta,
                                             Usage(usage.prompt_tokens, usage.completion_tokens)));
    std::string receipt;
    AppendReceipt(receipt, usage);
    AppendEvent("message_stop", receipt);
  }

  void Take(const ErrorEvent& event) {
    const ApiDialect dialect = options_.model->config.dialect;
    if (!streaming_) return client_->Send(AnthropicErrorResponse(event.error, dialect));
    over_ = true;
    out_ += fmt::format("event: error\ndata: {}\n\n", AnthropicErrorBody(event.error, dialect));
  }

  // --- Blocks. Only the last one can be open.

  // Returns the open block if it continues `wanted`, else starts a new one.
  Block& BlockOf(Block wanted) {
    if (!blocks_.empty() && is_open_ && blocks_.back().kind == wanted.kind &&
        blocks_.back().call == wanted.call)
      return blocks_.back();
    Open();
    CloseBlock();
    kept_.Add(kBlockBytes + wanted.id.size() + wanted.name.size());
    if (options_.stream) {
      AppendEvent("content_block_start",
                  fmt::format(R"(,"content_block":{},"index":{})", Json(wanted, "", ""), index_));
      blocks_.clear();
    }
    is_open_ = true;
    return blocks_.emplace_back(std::move(wanted));
  }

  void Append(Block& block, std::string_view text) {
    kept_.Add(text.size());
    if (!options_.stream) {
      block.text += text;
      return;
    }
    switch (block.kind) {
      case Kind::kText: return AppendDelta("text_delta", "text", text);
      case Kind::kThinking: return AppendDelta("thinking_delta", "thinking", text);
      case Kind::kToolUse: return AppendDelta("input_json_delta", "partial_json", text);
    }
  }

  void CloseBlock() {
    if (!std::exchange(is_open_, false) || !options_.stream) return;
    if (blocks_.back().kind == Kind::kThinking)
      AppendDelta("signature_delta", "signature", Signature());
    AppendEvent("content_block_stop", fmt::format(R"(,"index":{})", index_));
    ++index_;
  }

  // Returns a random signature. Clients send it back with the thinking block, and it is ignored.
  static std::string Signature() { return RandomHex(32); }

  static std::string Json(const Block& block, std::string_view text, std::string_view signature) {
    std::string out;
    switch (block.kind) {
      case Kind::kText:
        out = R"({"type":"text","text":)";
        json::AppendString(out, text);
        break;
      case Kind::kThinking:
        out = R"({"type":"thinking","thinking":)";
        json::AppendString(out, text);
        if (!signature.empty()) out += fmt::format(R"(,"signature":"{}")", signature);
        break;
      case Kind::kToolUse:
        out = R"({"type":"tool_use","id":)";
        json::AppendString(out, block.id);
        out += R"(,"name":)";
        json::AppendString(out, block.name);
        out.append(R"(,"input":)").append(InputOf(text));
        break;
    }
    return out + "}";
  }

  // --- JSON

  // `members`: the JSON after the type.
  void AppendEvent(std::string_view type, std::string_view members) {
    AppendFormat(out_, "event: {}\ndata: {{\"type\":\"{}\"{}}}\n\n", type, type, members);
  }

  void AppendDelta(std::string_view type, std::string_view name, std::string_view text) {
    std::string members = fmt::format(R"(,"delta":{{"type":"{}","{}":)", type, name);
    json::AppendString(members, text);
    AppendEvent("content_block_delta", fmt::format(R"({}}},"index":{})", members, index_));
  }

  // Returns the JSON of the message from its id up to its content.
  std::string Head() const {
    std::string out = R"({"id":)";
    json::AppendString(out, options_.id);
    return out + R"(,"type":"message","role":"assistant","content":[)";
  }

  std::string Usage(int64_t prompt_tokens, int64_t completion_tokens) const {
    std::string usage =
        fmt::format(R"({{"input_tokens":{},"output_tokens":{})", prompt_tokens, completion_tokens);
    if (const std::string& devices = options_.model->config.simulated; !devices.empty()) {
      usage += R"(,"simulated":)";
      json::AppendString(usage, devices);
    }
    usage.push_back('}');
    return usage;
  }

  // Starts the stream if it has not started yet.
  void Open() {
    if (!options_.stream || streaming_) return;
    client_->StartStream(EventStreamHead());
    streaming_ = true;
    std::string message = R"(,"message":)" + Head() + R"(],"model":)";
    json::AppendString(message, options_.model_name());
    message += fmt::format(R"(,"stop_reason":null,"stop_sequence":null,"usage":{}}})",
                           Usage(options_.prompts[0].num_tokens, /*completion_tokens=*/0));
    AppendEvent("message_start", message);
  }

  void SendWhole(const UsageEvent& usage) {
    std::string body = Head();
    for (const Block& block : blocks_) {
      if (&block != &blocks_.front()) body.push_back(',');
      body += Json(block, block.text, Signature());
    }
    body += R"(],"model":)";
    json::AppendString(body, options_.model_name());
    body += fmt::format(R"(,"stop_reason":{})", StopReason(finish_, has_called_));
    if (const auto* text = std::get_if<std::string>(&finish_.cause)) {
      body += R"(,"stop_sequence":)";
      json::AppendString(body, *text);
    }
    body += fmt::format(R"(,"usage":{})", Usage(usage.prompt_tokens, usage.completion_tokens));
    AppendReceipt(body, usage);
    body.push_back('}');
    HttpResponse response = JsonResponse(std::move(body));
    if (options_.add_headers) options_.add_headers(response);
    client_->Send(std::move(response));
  }

  static constexpr size_t kBlockBytes = 200;

  const AnswerOptions options_;
  const std::shared_ptr<ResponseWriter> client_;
  KeptMemory kept_{options_};
  std::vector<Block> blocks_;  // all blocks of the answer; in a stream, only the open block
  int index_ = 0;              // index of the open block
  bool is_open_ = false;
  bool has_called_ = false;
  bool streaming_ = false, over_ = false;
  FinishEvent finish_;
  std::string out_;  // the events of the current step
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeMessagesWriter(AnswerOptions options,
                                                 std::shared_ptr<ResponseWriter> client) {
  return std::make_unique<MessagesWriter>(std::move(options), std::move(client));
}

}  // namespace sluice
