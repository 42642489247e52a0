// Tests the exact bytes that each writer produces from the same events, because clients rely on the
// order of fields.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/api/answer/answer_writer.h"
#include "server/server_testing.h"

namespace sluice {
namespace {

class Recorder : public ResponseWriter {
 public:
  void Send(HttpResponse response) override { text += response.body; }
  void StartStream(HttpResponse) override {}
  void WriteChunk(std::string_view data) override { text += data; }
  void EndStream() override {}
  bool backlogged() const override { return false; }
  bool closed() const override { return false; }
  void SetCallbacks(std::function<void()>, std::function<void()>) override {}

  std::string text;
};

class WritersTest : public ::testing::Test {
 protected:
  WritersTest() {
    ServerConfig config;
    config.served_model_names = {"abacus"};
    config.fingerprint_mode = "custom";
    config.fingerprint_value = "fp";
    options_.model = TestModelContext(config, &engine_);
    options_.id = "id-1";
    options_.created = 5;
    options_.prompts.resize(1);
    options_.prompts[0].tokens = {7, 8};
    options_.prompts[0].num_tokens = 2;
    options_.return_token_ids = true;
    options_.include_usage = true;
  }

  // Returns the output for one choice in two steps, without the common start of bodies and chunks.
  std::string Text(WriterFactory* make, bool stream) {
    AnswerOptions options = options_;
    options.stream = stream;
    auto client = std::make_shared<Recorder>();
    const auto writer = make(std::move(options), client);
    writer->Write({TokensEvent{0, {10}, {}}, TextEvent{0, "a"}});
    writer->Write(
        {TokensEvent{0, {11}, {}}, TextEvent{0, "b"}, FinishEvent{0, FinishReason::kStop, 11}});
    UsageEvent usage;
    usage.prompt_tokens = usage.completion_tokens = 2;
    writer->Write({usage});
    std::string text = client->text;
    const std::string head = R"(","created":5,"model":"abacus","choices":[)";
    for (size_t at = text.find(R"({"id":)"); at != std::string::npos; at = text.find(R"({"id":)"))
      text.erase(at, text.find(head, at) + head.size() - at);
    return text;
  }

  FakeEngine engine_;
  AnswerOptions options_;
};

TEST_F(WritersTest, VllmCompletion) {
  EXPECT_EQ(Text(MakeVllmCompletionWriter, /*stream=*/false),
            R"({"index":0,"text":"ab","logprobs":null,"finish_reason":"stop",)"
            R"("stop_reason":11,"token_ids":[10,11],"prompt_logprobs":null,)"
            R"("prompt_token_ids":[7,8],"routed_experts":null}],"service_tier":null,)"
            R"("system_fingerprint":"fp","usage":{"prompt_tokens":2,"total_tokens":4,)"
            R"("completion_tokens":2,"prompt_tokens_details":null,)"
            R"("completion_tokens_details":null},"kv_transfer_params":null,)"
            R"("ec_transfer_params":null,"metrics":null})");
  EXPECT_EQ(Text(MakeVllmCompletionWriter, /*stream=*/true),
            R"(data: {"index":0,"text":"a","logprobs":null,"finish_reason":null,)"
            R"("stop_reason":null,"prompt_token_ids":[7,8],"token_ids":[10]}]})"
            "\n\n"
            R"(data: {"index":0,"text":"b","logprobs":null,"finish_reason":"stop",)"
            R"("stop_reason":11,"prompt_token_ids":null,"token_ids":[11]}]})"
            "\n\n"
            R"(data: ],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2},)"
            R"("system_fingerprint":"fp"})"
            "\n\n"
            R"(data: [DONE])"
            "\n\n");
}

TEST_F(WritersTest, VllmChat) {
  EXPECT_EQ(Text(MakeVllmChatWriter, /*stream=*/false),
            R"({"index":0,"message":{"role":"assistant","content":"ab","refusal":null,)"
            R"("annotations":null,"audio":null,"function_call":null,"reasoning":null},)"
            R"("logprobs":null,"finish_reason":"stop","stop_reason":11,"token_ids":[10,11],)"
            R"("routed_experts":null}],"service_tier":null,"system_fingerprint":"fp",)"
            R"("usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,)"
            R"("prompt_tokens_details":null,"completion_tokens_details":null},)"
            R"("prompt_logprobs":null,"prompt_token_ids":[7,8],"prompt_text":null,)"
            R"("kv_transfer_params":null,"ec_transfer_params":null,"metrics":null})");
  EXPECT_EQ(Text(MakeVllmChatWriter, /*stream=*/true),
            R"(data: {"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
            R"("finish_reason":null}],"prompt_token_ids":[7,8],"prompt_text":null})"
            "\n\n"
            R"(data: {"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null,)"
            R"("token_ids":[10]}]})"
            "\n\n"
            R"(data: {"index":0,"delta":{"content":"b"},"logprobs":null,)"
            R"("finish_reason":"stop","stop_reason":11,"token_ids":[11]}]})"
            "\n\n"
            R"(data: ],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2},)"
            R"("system_fingerprint":"fp"})"
            "\n\n"
            R"(data: [DONE])"
            "\n\n");
}

TEST_F(WritersTest, VllmChatTellsReasoningAndCalls) {
  options_.parsed = true;
  options_.return_token_ids = false;
  const auto text = [&](WriterFactory* make, bool stream) {
    AnswerOptions options = options_;
    options.stream = stream;
    auto client = std::make_shared<Recorder>();
    const auto writer = make(std::move(options), client);
    writer->Write({TokensEvent{0, {10}, {}}, ReasoningEvent{0, "hm"}});
    writer->Write({TokensEvent{0, {11}, {}}});  // the token's text is not known yet
    writer->Write({TokensEvent{0, {12}, {}}, ToolCallEvent{0, 0, "id-2", "f", ""},
                   ToolCallEvent{0, 0, "", "", "{\"a\""}});
    writer->Write({TokensEvent{0, {13}, {}}, ToolCallEvent{0, 0, "", "", ": 1}"}});
    FinishEvent finish{0, FinishReason::kStop};
    finish.called_tools = true;
    writer->Write({TokensEvent{0, {14}, {}}, finish});
    UsageEvent usage;
    usage.prompt_tokens = usage.completion_tokens = 2;
    usage.reasoning_tokens = 1;
    writer->Write({usage});
    return client->text;
  };
  const std::string whole = text(MakeVllmChatWriter, /*stream=*/false);
  EXPECT_NE(whole.find(R"("content":null,)"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("tool_calls":[{"id":"id-2","type":"function","function":{"name":"f",)"
                       R"("arguments":"{\"a\": 1}"}}],"reasoning":"hm","reasoning_content":"hm"})"),
            std::string::npos)
      << whole;
  EXPECT_NE(whole.find(R"("finish_reason":"tool_calls")"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("completion_tokens_details":{"reasoning_tokens":1})"), std::string::npos);
  const std::string stream = text(MakeVllmChatWriter, /*stream=*/true);
  std::string_view rest = stream;
  for (const char* delta :
       {R"("delta":{"role":"assistant","content":""})",
        R"("delta":{"reasoning":"hm","reasoning_content":"hm"})",
        R"("delta":{"tool_calls":[{"id":"id-2","type":"function","index":0,"function":{"name":"f",)"
        R"("arguments":"{\"a\""}}]})",
        R"("delta":{"tool_calls":[{"index":0,"function":{"arguments":": 1}"}}]})",
        R"("delta":{},"logprobs":null,"finish_reason":"tool_calls")",
        R"("completion_tokens_details":{"reasoning_tokens":1})"}) {
    const size_t at = rest.find(delta);
    ASSERT_NE(at, std::string_view::npos) << delta << " in " << stream;
    EXPECT_EQ(rest.substr(0, at).find("\"delta\""), std::string_view::npos) << delta;
    rest.remove_prefix(at + std::string_view(delta).size());
  }
  const std::string trtllm = text(MakeTrtllmChatWriter, /*stream=*/false);
  EXPECT_NE(trtllm.find(R"("reasoning_content":"hm","reasoning":"hm","tool_calls":[{"id":"id-2")"),
            std::string::npos)
      << trtllm;
}

// Returns the steps of an answer with everything that a message can contain.
std::vector<AnswerStep> MessageSteps() {
  FinishEvent finish{0, FinishReason::kStop};
  finish.called_tools = true;
  UsageEvent usage;
  usage.prompt_tokens = 2;
  usage.completion_tokens = 5;
  return {{TokensEvent{0, {10}, {}}, ReasoningEvent{0, "h"}},
          {TokensEvent{0, {11}, {}}, ReasoningEvent{0, "m"}, TextEvent{0, "a\n"}},
          {TokensEvent{0, {12}, {}}, TextEvent{0, ""}, ToolCallEvent{0, 0, "t0", "f", ""}},
          {ToolCallEvent{0, 0, "", "", "{\"a\""}, ToolCallEvent{0, 0, "", "", ": 1}"}},
          {ToolCallEvent{0, 1, "t1", "g", "{"}, finish},
          {usage}};
}

// Removes the signature of a thinking block, which is random.
std::string WithoutSignature(std::string text) {
  const std::string_view name = R"("signature":")";
  const size_t at = text.find(name);
  if (at == std::string::npos) return text;
  EXPECT_EQ(text[at + name.size() + 32], '"');
  return text.replace(at + name.size(), 32, "S");
}

std::string TextOf(const AnswerOptions& options, std::vector<AnswerStep> steps) {
  auto client = std::make_shared<Recorder>();
  const auto writer = MakeMessagesWriter(options, client);
  for (AnswerStep& step : steps) writer->Write(std::move(step));
  return WithoutSignature(client->text);
}

TEST_F(WritersTest, Message) {
  // The arguments of the second call are cut off: its input is an empty object.
  EXPECT_EQ(TextOf(options_, MessageSteps()),
            R"({"id":"id-1","type":"message","role":"assistant","content":[)"
            R"({"type":"thinking","thinking":"hm","signature":"S"},{"type":"text","text":"a\n"},)"
            R"({"type":"tool_use","id":"t0","name":"f","input":{"a": 1}},)"
            R"({"type":"tool_use","id":"t1","name":"g","input":{}}],"model":"abacus",)"
            R"("stop_reason":"tool_use","usage":{"input_tokens":2,"output_tokens":5}})");
  const UsageEvent usage;
  EXPECT_EQ(TextOf(options_, {{FinishEvent{0, FinishReason::kStop, "stop"}}, {usage}}),
            R"({"id":"id-1","type":"message","role":"assistant","content":[],"model":"abacus",)"
            R"("stop_reason":"stop_sequence","stop_sequence":"stop",)"
            R"("usage":{"input_tokens":0,"output_tokens":0}})");
}

TEST_F(WritersTest, StreamedMessage) {
  options_.stream = true;
  std::string expected;
  for (const auto& [type, rest] : std::initializer_list<std::pair<const char*, const char*>>{
           {"message_start",
            R"("message":{"id":"id-1","type":"message","role":"assistant","content":[],)"
            R"("model":"abacus","stop_reason":null,"stop_sequence":null,)"
            R"("usage":{"input_tokens":2,"output_tokens":0}})"},
           {"content_block_start",
            R"("content_block":{"type":"thinking","thinking":""},"index":0)"},
           {"content_block_delta", R"("delta":{"type":"thinking_delta","thinking":"h"},"index":0)"},
           {"content_block_delta", R"("delta":{"type":"thinking_delta","thinking":"m"},"index":0)"},
           {"content_block_delta",
            R"("delta":{"type":"signature_delta","signature":"S"},"index":0)"},
           {"content_block_stop", R"("index":0)"},
           {"content_block_start", R"("content_block":{"type":"text","text":""},"index":1)"},
           {"content_block_delta", R"("delta":{"type":"text_delta","text":"a\n"},"index":1)"},
           {"content_block_stop", R"("index":1)"},
           {"content_block_start",
            R"("content_block":{"type":"tool_use","id":"t0","name":"f","input":{}},"index":2)"},
           {"content_block_delta",
            R"("delta":{"type":"input_json_delta","partial_json":"{\"a\""},"index":2)"},
           {"content_block_delta",
            R"("delta":{"type":"input_json_delta","partial_json":": 1}"},"index":2)"},
           {"content_block_stop", R"("index":2)"},
           {"content_block_start",
            R"("content_block":{"type":"tool_use","id":"t1","name":"g","input":{}},"index":3)"},
           {"content_block_delta",
            R"("delta":{"type":"input_json_delta","partial_json":"{"},"index":3)"},
           {"content_block_stop", R"("index":3)"},
           {"message_delta", R"("delta":{"stop_reason":"tool_use","stop_sequence":null},)"
                             R"("usage":{"input_tokens":2,"output_tokens":5})"}}) {
    expected +=
        std::string("event: ") + type + "\ndata: {\"type\":\"" + type + "\"," + rest + "}\n\n";
  }
  expected += "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  EXPECT_EQ(TextOf(options_, MessageSteps()), expected);
}

TEST_F(WritersTest, MessageThatFailsOrWaits) {
  const ApiError error = ServiceUnavailable("no");
  const std::string body = R"({"type":"error","error":{"type":"overloaded_error","message":"no"}})";
  EXPECT_EQ(TextOf(options_, {{ErrorEvent{error}}}), body);
  options_.stream = true;
  EXPECT_EQ(TextOf(options_, {{ErrorEvent{error}}}), body);
  const std::string text = TextOf(options_, {{KeepAliveEvent{}}, {ErrorEvent{error}}});
  EXPECT_THAT(text, ::testing::StartsWith("event: message_start\n"));
  EXPECT_THAT(text, ::testing::EndsWith("event: ping\ndata: {\"type\":\"ping\"}\n\n"
                                        "event: error\ndata: " +
                                        body + "\n\n"));
}

TEST_F(WritersTest, TrtllmCompletion) {
  EXPECT_EQ(Text(MakeTrtllmCompletionWriter, /*stream=*/false),
            R"({"index":0,"text":"ab","token_ids":[10,11],"logprobs":null,)"
            R"("context_logits":null,"finish_reason":"stop","stop_reason":11,)"
            R"("disaggregated_params":null}],"usage":{"prompt_tokens":2,"total_tokens":4,)"
            R"("completion_tokens":2},"prompt_token_ids":null})");
  EXPECT_EQ(Text(MakeTrtllmCompletionWriter, /*stream=*/true),
            R"(data: {"index":0,"text":"a","token_ids":[10],"logprobs":null,)"
            R"("finish_reason":null,"stop_reason":null}],"usage":null})"
            "\n\n"
            R"(data: {"index":0,"text":"b","token_ids":[11],"logprobs":null,)"
            R"("finish_reason":"stop","stop_reason":11}],"usage":null})"
            "\n\n"
            R"(data: ],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2}})"
            "\n\n"
            R"(data: [DONE])"
            "\n\n");
}

TEST_F(WritersTest, TrtllmChat) {
  EXPECT_EQ(Text(MakeTrtllmChatWriter, /*stream=*/false),
            R"({"index":0,"message":{"role":"assistant","content":"ab",)"
            R"("reasoning_content":null,"reasoning":null,"tool_calls":[]},"logprobs":null,)"
            R"("finish_reason":"stop","stop_reason":11,"disaggregated_params":null}],)"
            R"("usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2},)"
            R"("prompt_token_ids":null})");
  EXPECT_EQ(Text(MakeTrtllmChatWriter, /*stream=*/true),
            R"(data: {"index":0,"delta":{"role":"assistant","content":null,)"
            R"("reasoning_content":null,"reasoning":null,"tool_calls":[]},"logprobs":null,)"
            R"("finish_reason":null,"stop_reason":null}],"usage":null})"
            "\n\n"
            R"(data: {"index":0,"delta":{"content":"a","reasoning_content":null,)"
            R"("reasoning":null,"tool_calls":[]},"logprobs":null,"finish_reason":null,)"
            R"("stop_reason":null}],"usage":null})"
            "\n\n"
            R"(data: {"index":0,"delta":{"content":"b","reasoning_content":null,)"
            R"("reasoning":null,"tool_calls":[]},"logprobs":null,"finish_reason":"stop",)"
            R"("stop_reason":11}],"usage":null})"
            "\n\n"
            R"(data: ],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2}})"
            "\n\n"
            R"(data: [DONE])"
            "\n\n");
}

}  // namespace
}  // namespace sluice
