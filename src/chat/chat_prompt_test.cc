#include "chat/chat_prompt.h"

#include <gtest/gtest.h>

#include "base/json_testing.h"

namespace sluice {
namespace {

using testing::Json;
using Format = ChatTemplate::ContentFormat;

ChatTemplate Compiled(const char* source) {
  return ChatTemplate::Compile(source).value();
}
std::string Normal(const char* messages, Format format = Format::kString) {
  const auto result = NormalizeMessages(Json(messages), format);
  return result ? json::Write(*result) : result.error().message;
}

TEST(NormalizeMessages, Contents) {
  EXPECT_EQ(Normal(R"([{"role": "user", "content": "a"}])"), R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(
      Normal(
          R"([{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "role": "user"}])"),
      R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(Normal(R"([{"role": "user", "content": "a"}])", Format::kParts),
            R"([{"role":"user","content":[{"type":"text","text":"a"}]}])");
  EXPECT_EQ(Normal(R"([{"role": "assistant", "content": null}])"),
            R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(Normal(R"([{"role": "assistant"}])", Format::kParts),
            R"([{"role":"assistant","content":[]}])");
}

TEST(NormalizeMessages, CallsAndReasoning) {
  EXPECT_EQ(
      Normal(R"([{"role": "assistant", "content": "", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}}]}])"),
      R"([{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f",)"
      R"("arguments":{"a":1}}},{"id":"2","type":"function","function":{"name":"g","arguments":{}}}]}])");
  EXPECT_EQ(
      Normal(R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{bad"}}]}])"),
      R"([{"role":"assistant","content":"","tool_calls":[{"function":{"arguments":"{bad"}}]}])");
  EXPECT_EQ(
      Normal(
          R"([{"role": "assistant", "content": "x", "tool_calls": [], "reasoning": "r", "name": null}])"),
      R"([{"role":"assistant","content":"x","reasoning":"r","reasoning_content":"r"}])");
}

// gpt-oss's template shows the reasoning of a message with calls until a final answer follows.
TEST(RenderChatPrompt, ReasoningIsThinkingWhereTheTemplateReadsThat) {
  const auto render = [](const std::string& source, std::string_view messages) {
    const auto chat_template = ChatTemplate::Compile(source);
    EXPECT_TRUE(chat_template) << chat_template.error().message;
    const auto text = RenderChatPrompt(*chat_template, {}, *json::Parse(messages));
    EXPECT_TRUE(text) << text.error().message;
    return text ? *text : "";
  };
  const std::string shown =
      "{% for message in messages %}[{{ message.thinking or '-' }}|{{ message.content }}]{% endfor "
      "%}";
  EXPECT_EQ(render(shown, R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning": "r"},
      {"role": "assistant", "content": "b", "reasoning": "r", "thinking": "own"},
      {"role": "assistant", "reasoning": "r", "tool_calls": [{"function": {"name": "f"}}]},
      {"role": "assistant", "content": "t", "reasoning": "r", "tool_calls": [{"function": {"name": "f"}}]}])"),
            "[-|q][r|a][own|b][r|][r\n\nt|]");
  EXPECT_EQ(render("{{ messages[0].thinking is defined }}",
                   R"([{"role": "assistant", "content": "a", "reasoning": "r"}])"),
            "False")
      << "other templates are given what vLLM gives them";
}

TEST(NormalizeMessages, ArgumentsThatAreNoObjectStayText) {
  for (const char* text : {"{bad", "[1]", "5", "null", "\"a\"", " "}) {
    const json::Value call =
        json::Value::Object{{"function", json::Value::Object{{"name", "f"}, {"arguments", text}}}};
    const json::Value message =
        json::Value::Object{{"role", "assistant"}, {"tool_calls", json::Value::Array{call}}};
    const auto normal =
        NormalizeMessages(json::Value(json::Value::Array{message}), Format::kString);
    ASSERT_TRUE(normal);
    EXPECT_EQ(*normal->as_array()[0]
                   .Find("tool_calls")
                   ->as_array()[0]
                   .Find("function")
                   ->Find("arguments"),
              json::Value(text));
  }
}

// Renders arguments of many kinds that models may write, with templates for each form of arguments.
TEST(RenderChatPrompt, ArgumentsNeverEndAConversation) {
  const std::string before =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}";
  const std::string after = "{% endfor %}{% endfor %}";
  const auto render = [&](const std::string& call, const json::Value& arguments) {
    const auto chat_template = ChatTemplate::Compile(before + call + after);
    EXPECT_TRUE(chat_template) << chat_template.error().message;
    const json::Value calls = json::Value::Array{
        json::Value::Object{
            {"function", json::Value::Object{{"name", "f"}, {"arguments", arguments}}}},
        json::Value::Object{
            {"function", json::Value::Object{{"name", "g"}, {"arguments", "{\"k\": 1}"}}}}};
    const json::Value message = json::Value::Object{{"role", "assistant"}, {"tool_calls", calls}};
    const auto text =
        RenderChatPrompt(*chat_template, {}, json::Value(json::Value::Array{message}));
    EXPECT_TRUE(text) << text.error().message;
    return text ? *text : "";
  };
  const std::string items = "{% for k, v in a | items %}<{{ k }}>{{ v }}{% endfor %};";
  const std::string method = "{% for k, v in a.items() %}<{{ k }}>{{ v }}{% endfor %};";
  const std::string strict =
      "{% if a is not mapping %}{{ raise_exception('a mapping') }}{% endif %}x";
  const std::string joined = "{{ '```' + a }};";
  EXPECT_EQ(render("{{ a | tojson }};", "{\"a\": "), R"("{\"a\": ";{"k": 1};)");
  EXPECT_EQ(render(items, "{\"a\": "), "<arguments>{\"a\": ;<k>1;");
  EXPECT_EQ(render(method, "[2]"), "<arguments>[2];<k>1;");
  EXPECT_EQ(render(strict, "5"), "xx");
  EXPECT_EQ(render(joined, "{\"a\": "), "```{\"a\": ;```{\"k\": 1};");
  EXPECT_EQ(render(joined, nullptr), "```{};```{\"k\": 1};");
  EXPECT_EQ(render(items, ""), ";<k>1;");
  // The error of a template that fails for another reason is reported.
  const auto broken = ChatTemplate::Compile(before + "{{ raise_exception('no calls') }}" + after);
  const json::Value message = Json(
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}])");
  EXPECT_EQ(RenderChatPrompt(*broken, {}, message).error().message, "no calls");
}

// A text of brackets takes a hundred times its size in memory once it is parsed.
TEST(NormalizeMessages, ArgumentsHoldALimitedNumberOfValues) {
  const auto normal = [](size_t lists) {
    std::string text = "[";
    for (size_t i = 0; i < lists; ++i) text += i == 0 ? "[]" : ",[]";
    const json::Value call = json::Value::Object{
        {"function", json::Value::Object{{"name", "f"}, {"arguments", text + "]"}}}};
    const json::Value message =
        json::Value::Object{{"role", "assistant"}, {"tool_calls", json::Value::Array{call, call}}};
    return NormalizeMessages(json::Value(json::Value::Array{message}), Format::kString);
  };
  EXPECT_TRUE(normal(1000));
  const auto refused = normal(300'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages[0].tool_calls[1].function.arguments");
}

TEST(NormalizeMessages, MistakesNameThePlace) {
  EXPECT_EQ(Normal("5"), "messages: must be a list, not integer");
  EXPECT_EQ(Normal("[5]"), "messages[0]: must be an object, not integer");
  EXPECT_EQ(Normal(R"([{"content": "a"}])"), "messages[0]: needs a string \"role\"");
  EXPECT_EQ(Normal(R"([{"role": "user", "content": 5}])"),
            "messages[0].content: must be a string or a list of parts, not integer");
  EXPECT_EQ(
      Normal(
          R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])"),
      "messages[0].content[0]: parts of type 'image_url' are not supported: this model takes text "
      "only");
  EXPECT_EQ(Normal(R"([{"role": "assistant", "tool_calls": 5}])"),
            "messages[0].tool_calls: must be a list, not integer");
}

TEST(NormalizeMessages, ImagesArePartsOrStandBeforeTheText) {
  const json::Value messages = Json(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}},
                                       {"type": "text", "text": "b"}, {"type": "image"}]}])");
  EXPECT_EQ(
      json::Write(NormalizeMessages(messages, Format::kParts, "<i>").value()),
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"},)"
      R"({"type":"image"}]}])");
  EXPECT_EQ(json::Write(NormalizeMessages(messages, Format::kString, "<i>").value()),
            R"([{"role":"user","content":"<i>\n<i>\na\nb"}])");
  EXPECT_FALSE(NormalizeMessages(messages, Format::kParts));
}

TEST(RenderChatPrompt, ATemplateOfPartsMayTakeTheSystemsTextAsAString) {
  const auto chat_template = Compiled(
      "{% for m in messages %}{% if m.role == 'system' %}{{ 'S:' + m.content }}{% elif m.content "
      "is string %}"
      "{{ m.content }}{% else %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %}{% "
      "endfor %}");
  const json::Value messages = Json(
      R"([{"role": "system", "content": "be short"}, {"role": "user", "content": [{"type": "text", "text": " hi"}]}])");
  EXPECT_EQ(RenderChatPrompt(chat_template, {}, messages).value(), "S:be short hi");
}

TEST(SpecialTokens, FromBothFiles) {
  EXPECT_EQ(
      json::Write(SpecialTokens(
          Json(
              R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null, "add_bos_token": true,
                         "extra_special_tokens": {"image_token": "<i>"}})"),
          Json(R"({"eos_token": "other", "unk_token": "<u>"})"))),
      R"({"bos_token":"<s>","eos_token":"</s>","image_token":"<i>","unk_token":"<u>"})");
}

TEST(RenderChatPrompt, GivesTheTemplateItsVariables) {
  const auto chat_template = Compiled(
      "{{ bos_token }}{{ tools is none }}{{ documents is none }}{{ mode }}{% for m in messages "
      "%}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}>{% endif %}{{ other is defined }}");
  ChatPromptOptions options;
  options.chat_template_kwargs = Json(
      R"({"mode": "M", "bos_token": "B", "messages": [], "add_generation_prompt": false, "x": 1})");
  EXPECT_EQ(RenderChatPrompt(chat_template, Json(R"({"bos_token": "<s>"})"),
                             Json(R"([{"role": "user", "content": "hi"}])"), options)
                .value(),
            "<s>TrueTrueMhi>False");
  options.chat_template_kwargs = Json("[]");
  EXPECT_FALSE(RenderChatPrompt(chat_template, {}, Json("[]"), options).has_value());
  options.chat_template_kwargs = json::Value::Object{{"mode", std::string(20000, 'x')}};
  EXPECT_FALSE(RenderChatPrompt(chat_template, {}, Json("[]"), options).has_value());
}

TEST(RenderChatPrompt, ContinuesTheLastMessage) {
  ChatPromptOptions options;
  options.add_generation_prompt = false;
  options.continue_final_message = true;
  const json::Value messages =
      Json(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "It is "}])");
  const auto plain =
      Compiled("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}");
  EXPECT_EQ(RenderChatPrompt(plain, {}, messages, options).value(), "<user>q</><assistant>It is ");
  const auto trimmed =
      Compiled("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}");
  EXPECT_EQ(RenderChatPrompt(trimmed, {}, messages, options).value(), "<user>q</><assistant>It is");
  const auto parts = Compiled(
      "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}</>{% endfor %}");
  EXPECT_EQ(RenderChatPrompt(parts, {}, messages, options).value(), "q</>It is ");
  const auto silent = Compiled("nothing {{ messages | length }}");
  EXPECT_FALSE(RenderChatPrompt(silent, {}, messages, options).has_value());
  options.add_generation_prompt = true;
  EXPECT_EQ(RenderChatPrompt(plain, {}, messages, options).error().message,
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
}

}  // namespace
}  // namespace sluice
