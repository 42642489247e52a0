#include "server/api/responses/response_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/request/response_tools.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

json::Value Parsed(std::string_view text) {
  Result<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

const FindItem kNoItems = [](const std::string&) { return std::nullopt; };

std::string MessagesOf(std::string_view items) {
  json::Value::Array messages;
  const ApiStatus status = AppendMessages(Parsed(items).as_array(), kNoItems, messages);
  return status ? json::Write(json::Value(std::move(messages))) : status.error().message;
}

TEST(ResponseItemsTest, AreMessages) {
  EXPECT_EQ(
      MessagesOf(R"([{"role":"developer","content":"Be kind."},{"type":"message","role":"user",)"
                 R"("content":[{"type":"input_text","text":"a"}]}])"),
      R"([{"role":"system","content":"Be kind."},)"
      R"({"role":"user","content":[{"type":"input_text","text":"a"}]}])");
  // The text of an answer is joined if the client sends it in several parts.
  EXPECT_EQ(MessagesOf(R"([{"role":"assistant","content":[{"type":"output_text","text":"a"},)"
                       R"({"type":"refusal","refusal":"b"}]}])"),
            R"([{"role":"assistant","content":"ab"}])");
}

TEST(ResponseItemsTest, OfOneTurnAreOneMessage) {
  EXPECT_EQ(
      MessagesOf(
          R"([{"type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}]},)"
          R"({"role":"assistant","content":"Look:"},)"
          R"({"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},)"
          R"({"type":"function_call","call_id":"c2","name":"g","arguments":"{\"a\":1}"},)"
          R"({"type":"function_call_output","call_id":"c1","output":"7"},)"
          R"({"role":"assistant","content":"Seven."},{"role":"assistant","content":"Yes."}])"),
      R"([{"role":"assistant","reasoning":"hm","content":"Look:","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},)"
      R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"7"},)"
      R"({"role":"assistant","content":"Seven."},{"role":"assistant","content":"Yes."}])");
}

TEST(ResponseItemsTest, OfToolsThatClientsRunAreCalls) {
  EXPECT_EQ(MessagesOf(R"([{"type":"local_shell_call","call_id":"c","action":{"command":["ls"]}},)"
                       R"({"type":"local_shell_call_output","output":"a.txt"},)"
                       R"({"type":"custom_tool_call","call_id":"d","name":"patch","input":"\"x"},)"
                       R"({"type":"custom_tool_call_output","call_id":"d","output":"ok"}])"),
            R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":)"
            R"({"name":"local_shell","arguments":"{\"command\":[\"ls\"]}"}}]},)"
            R"({"role":"tool","tool_call_id":"","content":"a.txt"},)"
            R"({"role":"assistant","tool_calls":[{"id":"d","type":"function","function":)"
            R"({"name":"patch","arguments":"{\"input\":\"\\\"x\"}"}}]},)"
            R"({"role":"tool","tool_call_id":"d","content":"ok"}])");
}

TEST(ResponseItemsTest, OfShellsPatchesAndServersOfToolsAreCalls) {
  EXPECT_EQ(
      MessagesOf(R"([{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}},)"
                 R"({"type":"shell_call_output","call_id":"c","output":[{"stdout":"a"}]},)"
                 R"({"type":"apply_patch_call","call_id":"d","operation":{"path":"x"}},)"
                 R"({"type":"apply_patch_call_output","call_id":"d","status":"completed"},)"
                 R"({"type":"mcp_call","id":"m","name":"f","arguments":"{}","output":"7"}])"),
      R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":)"
      R"({"name":"shell","arguments":"{\"commands\":[\"ls\"]}"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":"[{\"stdout\":\"a\"}]"},)"
      R"({"role":"assistant","tool_calls":[{"id":"d","type":"function","function":)"
      R"({"name":"apply_patch","arguments":"{\"path\":\"x\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"d","content":"completed"},)"
      R"({"role":"assistant","tool_calls":[{"id":"m","type":"function","function":)"
      R"({"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"m","content":"7"}])");
}

TEST(ResponseItemsTest, OfToolsOfOpenAisServersSayNothing) {
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":"a"},{"type":"web_search_call","id":"ws_1",)"
                       R"("status":"completed","action":{"type":"search","query":"q"}},)"
                       R"({"type":"code_interpreter_call","code":"1"},{"type":"mcp_list_tools"},)"
                       R"({"role":"assistant","content":"found"}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"found"}])");
}

TEST(ResponseItemsTest, NameFunctionsWithTheirNamespace) {
  EXPECT_EQ(MessagesOf(R"([{"type":"function_call","call_id":"c","namespace":"mcp__w","name":"f",)"
                       R"("arguments":"{}"}])"),
            R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":)"
            R"({"name":"mcp__w__f","arguments":"{}"}}]}])");
}

TEST(ResponseItemsTest, MayNameAnItem) {
  json::Value::Array messages;
  const FindItem find = [](const std::string& id) -> std::optional<json::Value> {
    EXPECT_EQ(id, "msg_1");
    return Parsed(R"({"type":"message","role":"assistant","content":"known"})");
  };
  ASSERT_TRUE(AppendMessages(Parsed(R"([{"type":"item_reference","id":"msg_1"}])").as_array(), find,
                             messages));
  EXPECT_EQ(json::Write(json::Value(messages)), R"([{"role":"assistant","content":"known"}])");
  EXPECT_THAT(MessagesOf(R"([{"id":"msg_2"}])"), HasSubstr("'msg_2' not found"));
}

TEST(ResponseItemsTest, GetIds) {
  const json::Value::Array text = InputItems(json::Value("hi"));
  ASSERT_EQ(text.size(), 1u);
  EXPECT_THAT(text[0].Find("id")->as_string(), StartsWith("msg_"));
  const json::Value::Array items =
      InputItems(Parsed(R"([{"role":"user","content":"a","id":"mine"},)"
                        R"({"type":"function_call","call_id":"c","name":"f","arguments":""}])"));
  EXPECT_EQ(*items[0].Find("id"), json::Value("mine"));
  EXPECT_EQ(*items[0].Find("type"), json::Value("message"));
  EXPECT_THAT(items[1].Find("id")->as_string(), StartsWith("fc_"));
}

TEST(ResponseItemsTest, MayEndUnfinished) {
  EXPECT_TRUE(EndsUnfinished(
      Parsed(R"([{"role":"assistant","content":"The","status":"incomplete"}])").as_array()));
  EXPECT_FALSE(EndsUnfinished(Parsed(R"([{"role":"assistant","content":"The"}])").as_array()));
  EXPECT_FALSE(EndsUnfinished({}));
}

TEST(ResponseToolsTest, AreToolsOfAChat) {
  const json::Value tools =
      Parsed(R"([{"type":"function","name":"f","parameters":{"type":"object"},"strict":null},)"
             R"({"type":"web_search_preview"},{"type":"local_shell"}])");
  EXPECT_EQ(json::Write(ChatTools(&tools)),
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(json::Write(ShownTools(&tools)),
            R"([{"name":"f","parameters":{"type":"object"},"strict":null,"type":"function",)"
            R"("allowed_callers":null,"async":null,"defer_loading":null,"description":null,)"
            R"("output_schema":null},)"
            R"({"type":"web_search_preview","search_content_types":null,)"
            R"("search_context_size":null,"user_location":null},{"type":"local_shell"}])");
  EXPECT_TRUE(ChatTools(nullptr).is_null());
}

TEST(ResponseToolsTest, OfNamespacesHaveTheirNames) {
  const json::Value tools =
      Parsed(R"([{"type":"function","name":"w__f"},{"type":"namespace","name":"w","tools":[)"
             R"({"type":"function","name":"f"},{"type":"function","name":"g","description":"d"},)"
             R"({"type":"custom","name":"h"}]}])");
  EXPECT_EQ(json::Write(ChatTools(&tools)),
            R"([{"type":"function","function":{"name":"w__f"}},)"
            R"({"type":"function","function":{"name":"w__f"}},)"
            R"({"type":"function","function":{"name":"w__g","description":"d"}}])");
  const NamespacedTools known = ToolsInNamespaces(&tools);
  ASSERT_EQ(known.size(), 1u);  // the first w__f takes precedence
  EXPECT_EQ(known.at("w__g").space, "w");
  EXPECT_EQ(known.at("w__g").name, "g");
  EXPECT_EQ(json::Write(ShownTools(&tools).as_array()[1]), json::Write(tools.as_array()[1]));
}

}  // namespace
}  // namespace sluice
