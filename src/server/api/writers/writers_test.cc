// The exact bytes that each writer makes of the same events: clients know the order of the fields.
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "server/api/answer_writer.h"
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

class WritersTest : public testing::Test {
 protected:
  WritersTest() {
    ServerConfig config;
    config.served_model_names = {"abacus"};
    config.fingerprint_mode = "custom";
    config.fingerprint_value = "fp";
    options_.model = *ModelContext::Load(config, &engine_, kServerTestModel);
    options_.id = "id-1";
    options_.created = 5;
    options_.prompts.resize(1);
    options_.prompts[0].tokens = {7, 8};
    options_.return_token_ids = true;
    options_.include_usage = true;
  }

  // Of one choice with two steps, without the head that bodies and chunks begin with.
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
    writer->Write({TokensEvent{0, {11}, {}}});  // what it says is not known yet
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
