#include "server/api/anthropic/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/common/request_body.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Reads a request that consists of a model, max_tokens and these members.
ApiResult<json::Value> Read(std::string_view members,
                            MessagesEndpoint endpoint = MessagesEndpoint::kMessages,
                            const ServerConfig& config = {}) {
  const ApiResult<json::Value> body =
      ParseBodyText(R"({"model":"abacus","max_tokens":9,)" + std::string(members) + "}");
  EXPECT_TRUE(body) << members;
  return ChatBodyOf(*body, config, endpoint);
}

std::string MemberOf(const ApiResult<json::Value>& chat, std::string_view name) {
  if (!chat) return chat.error().message;
  const json::Value* value = chat->Find(name);
  return value == nullptr ? "none" : json::Write(*value);
}

// Returns the chat messages that the request's messages become.
std::string Messages(const std::string& messages, const std::string& more = "") {
  return MemberOf(Read(R"("messages":[)" + messages + "]" + more), "messages");
}

const std::string kHello = R"({"role":"user","content":"hi"})";
const std::string kAsk = R"("messages":[)" + kHello + "],";

TEST(MessagesRequestTest, TextStaysText) {
  EXPECT_EQ(Messages(kHello), "[" + kHello + "]");
  EXPECT_EQ(Messages(R"({"role":"user","content":[{"type":"text","text":"a",)"
                     R"("cache_control":{"type":"ephemeral"}}]})"),
            R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(
      Messages(R"({"role":"user","content":[{"type":"text","text":"a"},)"
               R"({"type":"text","text":""},{"type":"text","text":"b"}]})"),
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
  EXPECT_EQ(Messages(R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm",)"
                     R"("signature":"s"},{"type":"redacted_thinking","data":"x"},)"
                     R"({"type":"text","text":"a"}]})"),
            R"([{"role":"assistant","content":"a","reasoning":"hm"}])");
}

TEST(MessagesRequestTest, SystemIsTheFirstMessage) {
  const std::string user = "," + kHello + "]";
  EXPECT_EQ(Messages(kHello, R"(,"system":"Be brief.")"),
            R"([{"role":"system","content":"Be brief."})" + user);
  EXPECT_EQ(Messages(kHello, R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},)"
                             R"({"type":"text","text":"Be"},{"type":"text","text":"kind."}])"),
            R"([{"role":"system","content":"Bekind."})" + user);
  EXPECT_EQ(Messages(R"({"role":"system","content":"Be brief."},)" + kHello),
            R"([{"role":"system","content":"Be brief."})" + user);
}

TEST(MessagesRequestTest, LaterSystemMessagesGoToTheUsersTurn) {
  const std::string system = R"({"role":"system","content":"Now."})";
  const std::string answer = R"({"role":"assistant","content":"ok"})";
  const std::string told = R"({"role":"user","content":"hi\n\nNow."})";
  EXPECT_EQ(Messages(kHello + "," + system), "[" + told + "]");
  EXPECT_EQ(Messages(kHello + "," + system + "," + answer), "[" + told + "," + answer + "]");
  EXPECT_EQ(Messages(kHello + "," + answer + "," + system + "," + kHello),
            "[" + kHello + "," + answer + "," + told + "]");
  EXPECT_EQ(Messages(kHello + "," + answer + "," + system + "," + system),
            "[" + kHello + "," + answer + R"(,{"role":"user","content":"Now.\n\nNow."}])");
  // A message without content is not a turn.
  EXPECT_EQ(Messages(kHello + "," + answer + "," + system + R"(,{"role":"user","content":[]})"),
            "[" + kHello + "," + answer + R"(,{"role":"user","content":"Now."}])");
  EXPECT_EQ(Messages(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t",)"
                     R"("content":"7"}]},)" +
                     system),
            R"([{"role":"tool","tool_call_id":"t","content":"7\n\nNow."}])");
}

TEST(MessagesRequestTest, CallsAndTheirResults) {
  EXPECT_EQ(
      Messages(R"({"role":"assistant","content":[{"type":"text","text":"Looking."},)"
               R"({"type":"tool_use","id":"t1","name":"f","input":{"a":[1,{"b":"\""}]}}]})"),
      R"([{"role":"assistant","content":"Looking.","tool_calls":[{"id":"t1","type":"function",)"
      R"("function":{"name":"f","arguments":"{\"a\":[1,{\"b\":\"\\\"\"}]}"}}]}])");
  // Inputs that are absent, null, or not an object.
  for (const auto& [input, arguments] :
       {std::pair(R"(,"input":"{\"a")", R"("{\"a")"), std::pair(R"(,"input":null)", R"("")"),
        std::pair("", R"("")")}) {
    EXPECT_EQ(Messages(std::string(R"({"role":"assistant","content":[{"type":"tool_use",)"
                                   R"("id":"t1","name":"f")") +
                       input + "}]}"),
              std::string(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"t1",)"
                          R"("type":"function","function":{"name":"f","arguments":)") +
                  arguments + "}}]}]");
  }
  EXPECT_EQ(Messages(R"({"role":"user","content":[{"type":"text","text":"so"},)"
                     R"({"type":"tool_result","tool_use_id":"t1","content":"7","is_error":true},)"
                     R"({"type":"tool_result","tool_use_id":"t2","content":[)"
                     R"({"type":"text","text":"8"}]},{"type":"tool_result","tool_use_id":"t3"}]})"),
            R"([{"role":"tool","tool_call_id":"t1","content":"7"},)"
            R"({"role":"tool","tool_call_id":"t2","content":"8"},)"
            R"({"role":"tool","tool_call_id":"t3","content":""},{"role":"user","content":"so"}])");
}

TEST(MessagesRequestTest, ToolsAreFunctions) {
  const auto chat =
      Read(kAsk + R"("tools":[{"name":"f","input_schema":{"properties":{}},)"
                  R"("cache_control":{"type":"ephemeral"}},{"name":"g","strict":true,)"
                  R"("description":"d","type":"custom","input_schema":{"type":"object"}}])");
  EXPECT_EQ(MemberOf(chat, "tools"),
            R"([{"type":"function","function":{"name":"f","description":null,)"
            R"("parameters":{"properties":{},"type":"object"}}},{"type":"function","function":)"
            R"({"name":"g","description":"d","parameters":{"type":"object"},"strict":true}}])");
  EXPECT_EQ(MemberOf(chat, "tool_choice"), "none");
  EXPECT_EQ(MemberOf(Read(kAsk + R"("tools":[])"), "tools"), "none");
}

TEST(MessagesRequestTest, ToolChoice) {
  const auto choice = [](const std::string& given) {
    const auto chat =
        Read(kAsk + R"("tools":[{"name":"f","input_schema":{}}],"tool_choice":)" + given);
    return MemberOf(chat, "tool_choice") + " " + MemberOf(chat, "parallel_tool_calls");
  };
  EXPECT_EQ(choice(R"({"type":"auto"})"), R"("auto" none)");
  EXPECT_EQ(choice(R"({"type":"any","disable_parallel_tool_use":true})"), R"("required" false)");
  EXPECT_EQ(choice(R"({"type":"none"})"), R"("none" none)");
  EXPECT_EQ(choice(R"({"type":"tool","name":"f"})"),
            R"({"type":"function","function":{"name":"f"}} none)");
  EXPECT_EQ(MemberOf(Read(kAsk + R"("tool_choice":{"type":"auto"})"), "tool_choice"), "none");
  EXPECT_THAT(MemberOf(Read(kAsk + R"("tool_choice":{"type":"any"})"), "tool_choice"),
              HasSubstr("there are no tools"));
}

TEST(MessagesRequestTest, SamplingAndFormat) {
  const auto chat =
      Read(kAsk + R"("temperature":0.5,"top_p":0.9,"top_k":5,"stream":true,"stop_sequences":["a"],)"
                  R"("metadata":{"user_id":"u"},"context_management":{"edits":[]},"seed":4,)"
                  R"("output_config":{"effort":"low","format":{"type":"json_schema","schema":)"
                  R"({"type":"object"}}})");
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"model", R"("abacus")"},
           {"max_tokens", "9"},
           {"temperature", "0.5"},
           {"top_p", "0.9"},
           {"top_k", "5"},
           {"stream", "true"},
           {"stop", R"(["a"])"},
           {"seed", "none"},
           {"reasoning_effort", R"("low")"},
           {"response_format", R"({"type":"json_schema","json_schema":{"name":"json_schema",)"
                               R"("schema":{"type":"object"}}})"}}) {
    EXPECT_EQ(MemberOf(chat, name), value) << name;
  }
  EXPECT_EQ(
      MemberOf(Read(kAsk + R"("temperature":1)", MessagesEndpoint::kCountTokens), "temperature"),
      "none");
}

TEST(MessagesRequestTest, Thinking) {
  ServerConfig parses;
  parses.reasoning_parser = "qwen3";
  const std::string enabled = kAsk + R"("thinking":{"type":"enabled","budget_tokens":8})";
  EXPECT_EQ(MemberOf(Read(enabled, MessagesEndpoint::kMessages, parses), "chat_template_kwargs"),
            R"({"enable_thinking":true})");
  EXPECT_THAT(MemberOf(Read(enabled), "x"), HasSubstr("--reasoning-parser"));
  // A request that only counts tokens needs no parser.
  EXPECT_EQ(MemberOf(Read(enabled, MessagesEndpoint::kCountTokens), "chat_template_kwargs"),
            R"({"enable_thinking":true})");
  EXPECT_EQ(MemberOf(Read(kAsk + R"("thinking":{"type":"disabled"})"), "chat_template_kwargs"),
            R"({"enable_thinking":false})");
  EXPECT_EQ(MemberOf(Read(kAsk + R"("thinking":{"type":"adaptive"})"), "chat_template_kwargs"),
            "none");
  EXPECT_EQ(MemberOf(Read(kAsk + R"("chat_template_kwargs":{"enable_thinking":1,"a":2},)"
                                 R"("thinking":{"type":"disabled"})"),
                     "chat_template_kwargs"),
            R"({"enable_thinking":1,"a":2})");
  const auto large = Read(kAsk + R"("thinking":{"type":"enabled","budget_tokens":9})",
                          MessagesEndpoint::kMessages, parses);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().param, "body");
}

TEST(MessagesRequestTest, WrongFieldsAreNamed) {
  const auto ask = [](const std::string& block, const char* role = "user") {
    return R"("messages":[{"role":")" + std::string(role) + R"(","content":[)" + block + "]}]";
  };
  for (const auto& [members, param] : std::initializer_list<std::pair<std::string, const char*>>{
           {R"("system":"a")", "body.messages"},
           {R"("messages":[5])", "body.messages.0"},
           {R"("messages":[{"role":"robot","content":"a"}])", "body.messages.0.role"},
           {R"("messages":[{"role":5,"content":"a"}])", "body.messages.0.role"},
           {R"("messages":[{"role":"user"}])", "body.messages.0.content"},
           {R"("messages":[{"role":"user","content":5}])", "body.messages.0.content"},
           {ask("5"), "body.messages.0.content"},
           {ask(R"({"type":"document"})"), "body.messages.0.content"},
           {ask(R"({"type":"tool_use","id":"a","name":"f","input":{}})"),
            "body.messages.0.content"},
           {ask(R"({"type":"tool_result","tool_use_id":"a"})", "assistant"),
            "body.messages.0.content"},
           {ask(R"({"type":"text","text":5})"), "body.messages.0.content.0.text"},
           {ask(R"({"type":"tool_use","id":"a","name":"f","input":[]})", "assistant"),
            "body.messages.0.content.0.input"},
           {ask(R"({"type":"tool_result"})"), "body.messages.0.content.0.tool_use_id"},
           {ask(R"({"type":"tool_result","tool_use_id":"a","content":5})"),
            "body.messages.0.content.0.content"},
           {kAsk + R"("system":[{"type":"image"}])", "body.system"},
           {kAsk + R"("system":5)", "body.system"},
           {kAsk + R"("stop_sequences":"a")", "body.stop_sequences"},
           {kAsk + R"("stop_sequences":[""])", "body.stop_sequences.0"},
           {kAsk + R"("stop_sequences":["a","b","c","d","e"])", "body.stop_sequences"},
           {kAsk + R"("tools":[{"name":"f"}])", "body.tools.0.input_schema"},
           {kAsk + R"("tools":[{"input_schema":{}}])", "body.tools.0.name"},
           {kAsk + R"("tools":[{"type":"web_search_20250305","name":"web_search"}])",
            "body.tools.0.type"},
           {kAsk + R"("tool_choice":{"type":"x"})", "body.tool_choice.type"},
           {kAsk + R"("tool_choice":{"type":"tool"})", "body.tool_choice"},
           {kAsk + R"("thinking":{"type":"x"})", "body.thinking.type"},
           {kAsk + R"("metadata":5)", "body.metadata"},
           {kAsk + R"("output_config":{"format":{"type":"x"}})", "body.output_config.format.type"},
           {kAsk + R"("mcp_servers":[{"name":"a"}])", "mcp_servers"}}) {
    const auto chat = Read(members);
    ASSERT_FALSE(chat) << members;
    EXPECT_EQ(chat.error().param, param) << members;
  }
  const json::Value empty{json::Value::Object{}};
  EXPECT_THAT(ChatBodyOf(empty, {}, MessagesEndpoint::kMessages).error().message,
              ::testing::AllOf(HasSubstr("body.model"), HasSubstr("body.max_tokens"),
                               HasSubstr("body.messages")));
  EXPECT_THAT(ChatBodyOf(empty, {}, MessagesEndpoint::kCountTokens).error().message,
              ::testing::Not(HasSubstr("max_tokens")));
  EXPECT_FALSE(ChatBodyOf(json::Value(5), {}, MessagesEndpoint::kMessages));
}

// Each message is appended once, so the work is linear in the number of messages.
TEST(MessagesRequestTest, ManySystemMessagesCostWorkInProportion) {
  std::string messages = kHello;
  for (int i = 0; i < 50000; ++i) messages += R"(,{"role":"system","content":"0123456789"})";
  EXPECT_EQ(Messages(messages).size(), 50000 * 14 + kHello.size() + 2);
}

}  // namespace
}  // namespace sluice
