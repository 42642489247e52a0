// Tests the reading of request bodies: what is accepted, what is refused, and with which error.
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/common/number_text.h"
#include "server/api/common/python_text.h"
#include "server/api/common/request_body.h"
#include "server/api/openai/chat_request.h"
#include "server/api/openai/completion_request.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

HttpRequest JsonRequest(std::string body) {
  HttpRequest request;
  request.headers.push_back({"content-type", "application/json; charset=utf-8"});
  request.body = std::move(body);
  return request;
}

json::Value Parse(std::string_view text) {
  ApiResult<json::Value> value = ParseBodyText(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

TEST(NumberTextTest, ReadsNumbers) {
  EXPECT_EQ(ParseInteger(" 65"), 65);
  EXPECT_EQ(ParseInteger("+65"), 65);
  EXPECT_EQ(ParseInteger("065"), 65);
  EXPECT_EQ(ParseInteger("1_0"), 10);
  EXPECT_EQ(ParseInteger("-99999999999999999999"), std::numeric_limits<int64_t>::min());
  for (const char* bad :
       {"", " ", "abc", "65.0", "1e1", "_1", "1_", "1__0", "+", "+-1", "0x10", "\uFF16\uFF15"})
    EXPECT_FALSE(ParseInteger(bad)) << bad;
  EXPECT_EQ(ParseNumber(".5"), 0.5);
  EXPECT_EQ(ParseNumber("1_0.5"), 10.5);
  EXPECT_EQ(ParseNumber("-1e-1"), -0.1);
  EXPECT_TRUE(std::isinf(*ParseNumber("Infinity")));
  EXPECT_TRUE(std::isnan(*ParseNumber("NaN")));
  for (const char* bad : {"", "x", "0x1", "+-1", "1_", "1e999"})
    EXPECT_FALSE(ParseNumber(bad)) << bad;
}

TEST(PythonTextTest, CountsCharacters) {
  EXPECT_EQ(CountCharacters("a\u00E9\u6F22\U0001F9EE"), 4u);
  EXPECT_EQ(TrimToCharacters("a\u00E9\u6F22", 2), "a\u00E9");
}

TEST(RequestBodyTest, WantsJson) {
  HttpRequest request = JsonRequest("{}");
  EXPECT_TRUE(ParseRequestBody(request));
  for (const char* type : {"text/plain", "application/vnd.api+json", "application/jsonp", ""}) {
    request.headers[0].value = type;
    const auto body = ParseRequestBody(request);
    ASSERT_FALSE(body) << type;
    EXPECT_THAT(body.error().message, HasSubstr("Unsupported Media Type"));
    EXPECT_FALSE(body.error().param);
  }
  request.headers[0].value = "APPLICATION/JSON";
  EXPECT_TRUE(ParseRequestBody(request));
  request.headers.clear();
  EXPECT_FALSE(ParseRequestBody(request));
}

TEST(RequestBodyTest, TakesJson) {
  EXPECT_EQ(Parse("{\"a\":1,\"a\":2}").Find("a")->as_integer(), 2);
  EXPECT_EQ(Parse("{\"a\":\"\\ud83e\\uddee\"}").Find("a")->as_string(), "\U0001F9EE");
  EXPECT_TRUE(ParseRequestBody(JsonRequest("\xEF\xBB\xBF{}")));
  EXPECT_TRUE(ParseRequestBody(JsonRequest(""))->is_null());
}

TEST(RequestBodyTest, NamesThePlace) {
  const struct {
    const char* text;
    const char* place;
    const char* words;
  } cases[] = {
      {R"({"model": "abacus", "prompt": )", "body.30", "found the end"},
      {R"({"model":"abacus","prompt":"a",})", "body.31", R"(found "}")"},
      {"{", "body.1", "found the end"},
      {"{\"\u00E9\" 1}", "body.5", R"(found "1}")"},
      {"[1 2]", "body.3", R"(found "2]")"},
      {"{} x", "body.3", "text after the value"},
      {"{\"a\":NaN}", "body.5", "found \"NaN}\""},
      {"{\"a\":tru}", "body.5", "found \"tru}\""},
      {"{\"a\":01}", "body.5", "'01' is not a number"},
      {"{\"a\":\"b", "body", "never closed"},
      {"{\"a\":\"\n\"}", "body", "unescaped"},
  };
  for (const auto& test : cases) {
    const auto value = ParseBodyText(test.text);
    ASSERT_FALSE(value) << test.text;
    EXPECT_EQ(value.error().type, "Bad Request");
    EXPECT_EQ(value.error().param, test.place) << test.text << value.error().message;
    EXPECT_THAT(value.error().message, HasSubstr(test.words)) << test.text;
  }
}

// Valid JSON syntax with values that no field can represent.
TEST(RequestBodyTest, RefusesValuesWithoutRepresentation) {
  for (const char* value : {"1e999", "-1e999", R"("\ud800")", R"("\udc00")", R"("\ud800\u0041")"}) {
    const auto body = ParseBodyText(fmt::format(R"({{"a":[{}]}})", value));
    ASSERT_FALSE(body) << value;
    EXPECT_EQ(body.error().type, "BadRequestError") << value;
    EXPECT_FALSE(body.error().param) << value;
  }
}

TEST(RequestBodyTest, RefusesTheHostile) {
  const std::string hostile[] = {
      "{\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
      "{\"x\":" + std::string(5000, '9') + "}", "{\"x\":\"\xFF\"}",
      std::string("\xFF\xFE{\0}\0", 6),  // UTF-16
  };
  for (const std::string& text : hostile) {
    const auto value = ParseBodyText(text);
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().detail, "There was an error parsing the body");
  }
  std::string list = "[0";
  for (int i = 0; i < 1100000; ++i) list += ",0";
  EXPECT_FALSE(ParseBodyText(list + "]"));
}

struct Refusal {
  const char* body;
  const char* type;
  const char* param;  // nullptr: JSON null
  const char* words;
};

template <typename Result>
void ExpectRefused(const Result& result, const Refusal& expected) {
  ASSERT_FALSE(result) << expected.body;
  EXPECT_EQ(result.error().status, 400) << expected.body;
  EXPECT_EQ(result.error().type, expected.type) << expected.body;
  if (expected.param == nullptr) {
    EXPECT_FALSE(result.error().param) << expected.body << *result.error().param;
  } else {
    EXPECT_EQ(result.error().param, expected.param) << expected.body;
  }
  EXPECT_THAT(result.error().message, HasSubstr(expected.words)) << expected.body;
}

TEST(CompletionRequestTest, NamesWhatIsWrong) {
  const Refusal cases[] = {
      {"[]", "Bad Request", "body", "body: expected an object, found a list of 0 elements"},
      {"null", "Bad Request", "body", "found null"},
      {R"({})", "BadRequestError", "prompt", "Either prompt or prompt_embeds must be provided"},
      {R"({"prompt":""})", "BadRequestError", "prompt", "(parameter=prompt)"},
      {R"({"prompt":[]})", "BadRequestError", nullptr, "at least one prompt"},
      {R"({"prompt":5})", "Bad Request", "body.prompt", "a string, or a list of"},
      {R"({"prompt":[1,"a"]})", "Bad Request", "body.prompt.1",
       "a token id of at least 0, found \"a\""},
      {R"({"prompt":["a",[1]]})", "Bad Request", "body.prompt.0", "found \"a\""},
      {R"({"prompt":[1.5]})", "Bad Request", "body.prompt.0", "found 1.5"},
      {R"({"prompt":[-1]})", "Bad Request", "body.prompt.0", "found -1"},
      {R"({"prompt":[[[1]]]})", "Bad Request", "body.prompt.0", "body.prompt.0.0"},
      {R"({"prompt":"a","prompt_embeds":"AAAA"})", "BadRequestError", "prompt_embeds",
       "You must set `--enable-prompt-embeds`"},
      {R"({"prompt_embeds":[]})", "BadRequestError", "prompt", "Either prompt or prompt_embeds"},
      {R"({"prompt_embeds":5})", "Bad Request", "body.prompt_embeds", "a string, or a list"},
      {R"({"prompt":"a","suffix":""})", "BadRequestError", "suffix", "suffix"},
      {R"({"prompt":"a","logprobs":"2"})", "BadRequestError", "logprobs",
       "`logprobs` must be an integer."},
      {R"({"prompt":"a","temperature":[]})", "Bad Request", "body.temperature",
       "body.temperature: expected a number, found a list of 0 elements"},
      {R"({"prompt":"a","top_k":1.5})", "Bad Request", "body.top_k",
       "expected an integer, found 1.5"},
      {R"({"prompt":"a","seed":9223372036854775808})", "Bad Request", "body.seed",
       "an integer of 64 bits, found 9223372036854775808"},
      {R"({"prompt":"a","seed":"x"})", "Bad Request", "body.seed", "found \"x\""},
      {R"({"prompt":"a","n":null})", "Bad Request", "body.n", "expected an integer, found null"},
      {R"({"prompt":"a","min_tokens":null})", "Bad Request", "body.min_tokens", "found null"},
      {R"({"prompt":"a","bad_words":null})", "Bad Request", "body.bad_words",
       "expected a list, found null"},
      {R"({"prompt":"a","stop":5})", "Bad Request", "body.stop", "found 5"},
      {R"({"prompt":"a","stop":[1,2]})", "Bad Request", "body.stop",
       "a string or a list of at most 4 strings"},
      {R"({"prompt":"a","stop":["1","2","3","4","5"]})", "Bad Request", "body.stop",
       "found a list of 5 elements"},
      {R"({"prompt":"a","stop_token_ids":[1.5]})", "Bad Request", "body.stop_token_ids.0",
       "found 1.5"},
      {R"({"prompt":"a","logit_bias":[]})", "Bad Request", "body.logit_bias", "expected an object"},
      {R"({"prompt":"a","ignore_eos":"2"})", "Bad Request", "body.ignore_eos",
       "a boolean, found \"2\""},
      {R"({"prompt":"a","truncate_prompt_tokens":-2})", "Bad Request",
       "body.truncate_prompt_tokens", "of at least -1, found -2"},
      {R"({"prompt":"a","truncation_side":"middle"})", "Bad Request", "body.truncation_side",
       "\"left\", \"right\""},
      {R"({"prompt":"a","stream_options":{"include_usage":true}})", "BadRequestError",
       "stream_options", "stream=True"},
      {R"({"prompt":"a","stream":true,"stream_options":"x"})", "Bad Request", "body.stream_options",
       "an object, found \"x\""},
      {R"({"prompt":"a","stream":true,"prompt_logprobs":1})", "BadRequestError", "prompt_logprobs",
       "not available"},
      {R"({"prompt":"a","prompt_logprobs":-2})", "BadRequestError", "prompt_logprobs",
       "positive value or -1"},
      {R"({"prompt":"a","model":5})", "Bad Request", "body.model", "expected a string, found 5"},
      {R"({"prompt":"a","cache_salt":""})", "BadRequestError", "cache_salt", "non-empty"},
      {R"({"prompt":"a","response_format":"json"})", "Bad Request", "body.response_format",
       "expected an object"},
      {R"({"prompt":"a","response_format":{"type":"bogus"}})", "Bad Request",
       "body.response_format.type", "found \"bogus\""},
      {R"({"prompt":"a","response_format":{"type":"json_schema"}})", "BadRequestError",
       "response_format", "json_schema"},
      {R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"schema":{}}}})",
       "Bad Request", "body.response_format.json_schema.name", "found nothing"},
      {R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"a"}}})",
       "BadRequestError", "response_format", "json_schema.schema must be"},
      {R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"a","schema":true}}})",
       "Bad Request", "body.response_format.json_schema.schema", "found true"},
      {R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{"type":"string","not":{"pattern":"a"}}}}})",
       "BadRequestError", nullptr, "`not` at #"},
      {R"({"prompt":"a","response_format":{"type":"structural_tag"}})", "BadRequestError",
       "response_format", "structural_tag specification"},
      {R"({"prompt":"a","structured_outputs":{}})", "BadRequestError", nullptr, "found none"},
      {R"({"prompt":"a","structured_outputs":[1]})", "Bad Request", "body.structured_outputs",
       "expected an object"},
      {R"({"prompt":"a","structured_outputs":{"regex":"a","choice":["b"]}})", "BadRequestError",
       "structured_outputs", "exactly one of"},
      {R"({"prompt":"a","structured_outputs":{"regex":5}})", "Bad Request",
       "body.structured_outputs.regex", "found 5"},
      {R"x({"prompt":"a","structured_outputs":{"regex":"(?=a)"}})x", "BadRequestError", nullptr,
       "look-around"},
      {R"({"prompt":"a","structured_outputs":{"choice":[]}})", "BadRequestError", nullptr,
       "structured_outputs.choice must not be empty"},
      {R"({"prompt":"a","structured_outputs":{"choice":["a",1]}})", "Bad Request",
       "body.structured_outputs.choice.1", "expected a string"},
      {R"({"prompt":"a","structured_outputs":{"json":"x"}})", "BadRequestError", nullptr,
       "Invalid JSON grammar specification"},
      {R"({"prompt":"a","structured_outputs":{"json":[1]}})", "Bad Request",
       "body.structured_outputs.json", "a JSON schema"},
      {R"({"prompt":"a","structured_outputs":{"grammar":""}})", "BadRequestError", nullptr,
       "cannot be an empty string"},
      {R"({"prompt":"a","structured_outputs":{"structural_tag":"x"}})", "BadRequestError",
       "structured_outputs", "structural_tag specification"},
      {R"({"prompt":"a","structured_outputs":{"regex":"a"},"response_format":{"type":"json_object"}})",
       "BadRequestError", nullptr, "response_format, structured_outputs.regex; omit all but one"},
      {R"({"prompt":"a","guided_regex":"a","guided_choice":["b"]})", "BadRequestError", nullptr,
       "guided_regex, guided_choice; omit"},
      {R"({"prompt":"a","use_beam_search":true,"stream":true})", "BadRequestError", nullptr,
       "Streaming is not currently supported with beam search"},
      {R"({"prompt":"a","logprob_token_ids":[1]})", "BadRequestError", "logprob_token_ids",
       "must be set"},
      {R"({"prompt":"a","logprobs":1,"logprob_token_ids":[]})", "BadRequestError",
       "logprob_token_ids", "must not be an empty list"},
      {R"({"prompt":"a","logprobs":1,"logprob_token_ids":[1],"use_beam_search":true})",
       "BadRequestError", "logprob_token_ids", "beam search"},
      {R"({"prompt":"a","logprobs":1,"logprob_token_ids":[1],"echo":true,"max_tokens":0})",
       "BadRequestError", "logprob_token_ids", "no output tokens"},
      {R"({"prompt":"a","logprobs":1,"logprob_token_ids":[1.5]})", "Bad Request",
       "body.logprob_token_ids.0", "an integer"},
      {R"({"prompt":"a","vllm_xargs":{"a":{"b":1}}})", "Bad Request", "body.vllm_xargs.a",
       "an object with 1 member"},
      {R"({"prompt":"a","watermarking":{"a":1}})", "Bad Request", "body.watermarking",
       "expected a boolean"},
  };
  for (const Refusal& test : cases)
    ExpectRefused(ReadCompletionRequest(Parse(test.body), ServerConfig{}), test);
}

TEST(CompletionRequestTest, Takes) {
  const auto decode = [](std::string_view text) {
    auto request = ReadCompletionRequest(Parse(text), ServerConfig{});
    EXPECT_TRUE(request) << text << (request ? "" : request.error().message);
    return request ? *request : CompletionRequest{};
  };
  EXPECT_EQ(decode(R"({"prompt":"a"})").texts, std::vector<std::string>{"a"});
  EXPECT_EQ(decode(R"({"prompt":["a",""]})").texts.size(), 2u);
  EXPECT_EQ(decode(R"({"prompt":[5,"6",true,7.0]})").ids,
            (std::vector<std::vector<int64_t>>{{5, 6, 1, 7}}));
  EXPECT_EQ(decode(R"({"prompt":[[5],[6,7]]})").ids.size(), 2u);
  EXPECT_EQ(decode(R"({"prompt":[[]]})").ids.size(), 1u);
  EXPECT_EQ(decode(R"({"prompt":"a","max_tokens":null})").sampling.max_tokens, 16);
  EXPECT_EQ(decode(R"({"prompt":"a","max_tokens":" 8 "})").sampling.max_tokens, 8);
  EXPECT_EQ(decode(R"({"prompt":"a","logprobs":true})").sampling.logprobs, 1);
  EXPECT_TRUE(decode(R"({"prompt":"a","stream":"yes"})").sampling.stream);
  EXPECT_FALSE(decode(R"({"prompt":"a","stream":null,"echo":null})").sampling.stream);
  EXPECT_EQ(decode(R"({"prompt":"a","stop":"x"})").sampling.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(decode(R"({"prompt":"a","stop":null,"seed":null,"temperature":null,"logprobs":null})")
                  .sampling.stop.empty());
  decode(R"({"prompt":"a","best_of":0,"foo":1,"max_completion_tokens":"x","user":"u"})");
  decode(
      R"({"prompt":"a","response_format":{"type":"text"},"kv_transfer_params":{"do_remote_decode":false}})");
  const auto usage =
      decode(R"({"prompt":"a","stream":true,"stream_options":{"continuous_usage_stats":true}})");
  EXPECT_FALSE(usage.sampling.include_usage);
  EXPECT_FALSE(usage.sampling.continuous_usage_stats);
}

TEST(CompletionRequestTest, TakesEmbeddingsWhereTheServerDoes) {
  ServerConfig config;
  config.enable_prompt_embeds = true;
  const auto decode = [&](const json::Value& body) { return ReadCompletionRequest(body, config); };
  const json::Value one = Parse(R"({"prompt_embeds":"AAAA"})");
  const json::Value both = Parse(R"({"prompt":["a"],"prompt_embeds":["AAAA","BBBB"]})");
  EXPECT_EQ(decode(one)->rows, std::vector<std::string_view>{"AAAA"});
  EXPECT_TRUE(decode(one)->texts.empty());
  EXPECT_EQ(decode(both)->rows.size(), 2u);
  EXPECT_EQ(decode(both)->texts.size(), 1u);
  const Refusal cases[] = {
      {R"({"prompt_embeds":"A","echo":true})", "BadRequestError", "echo", "Echo is unsupported"},
      {R"({"prompt_embeds":"A","prompt_logprobs":1})", "BadRequestError", "prompt_logprobs",
       "not compatible"},
      {R"({"prompt_embeds":"A","use_beam_search":true})", "BadRequestError", "use_beam_search",
       "not supported"},
      {R"({"prompt_embeds":"A","truncate_prompt_tokens":1})", "BadRequestError",
       "truncate_prompt_tokens", "not supported"},
  };
  for (const Refusal& test : cases) ExpectRefused(decode(Parse(test.body)), test);
}

TEST(CompletionRequestTest, RefusesAPatternOfWhiteSpaceByName) {
  const Refusal expected{"", "BadRequestError", "guided_whitespace_pattern", "not supported"};
  const char* body = R"({"prompt":"a","guided_json":{},"guided_whitespace_pattern":" "})";
  ExpectRefused(ReadCompletionRequest(Parse(body), ServerConfig{}), expected);
}

TEST(ChatRequestTest, NamesWhatIsWrong) {
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
  const Refusal cases[] = {
      {R"({})", "Bad Request", "body.messages", "found nothing"},
      {R"({"messages":null})", "BadRequestError", nullptr, "messages"},
      {R"({"messages":{}})", "Bad Request", "body.messages", "expected a list"},
      {R"({"messages":["hi"]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam", "expected an object"},
      {R"({"messages":[{}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.content", "found nothing"},
      {R"({"messages":[{"role":"user","content":null}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.content", "found null"},
      {R"({"messages":[{"content":"a"}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.role", "found nothing"},
      {R"({"messages":[{"role":5,"content":"a"}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.role", "found 5"},
      {"{" MESSAGES ",\"tools\":[]}", "BadRequestError", "tools", "empty array"},
      {"{" MESSAGES ",\"tools\":\"x\"}", "Bad Request", "body.tools", "expected a list"},
      {"{" MESSAGES ",\"tools\":[{\"type\":\"bogus\"}]}", "Bad Request", "body.tools.0.type",
       "found \"bogus\""},
      {"{" MESSAGES ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "Bad Request",
       "body.tools.0.function.name", "found nothing"},
      {"{" MESSAGES "," TOOLS "}", "BadRequestError", nullptr, "\"auto\" tool choice requires"},
      {"{" MESSAGES "," TOOLS ",\"tool_choice\":\"required\"}", "BadRequestError", nullptr,
       "requires --tool-call-parser"},
      {"{" MESSAGES "," TOOLS ",\"tool_choice\":\"bogus\"}", "BadRequestError", "tool_choice",
       "bogus"},
      {"{" MESSAGES "," TOOLS
       ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
       "BadRequestError", "tool_choice", "does not match"},
      {"{" MESSAGES "," TOOLS ",\"tool_choice\":{\"function\":{}}}", "BadRequestError",
       "tool_choice.function", "a named `tool_choice` must be"},
      {"{" MESSAGES "," TOOLS
       ",\"tool_choice\":{\"function\":{\"name\":\"f\"}},\"structured_outputs\":{\"regex\":\"a\"}}",
       "BadRequestError", nullptr, "not both"},
      {"{" MESSAGES ",\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":1}}]}", "Bad Request",
       "body.tools.0.function.parameters", "found 1"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]})", "Bad Request",
       "body.0.ChatCompletionMessageFunctionToolCallParam.id", "found nothing"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f",)"
       R"("arguments":{"a":1}}}]}]})",
       "Bad Request", "body.0.ChatCompletionMessageFunctionToolCallParam.function",
       "a string `arguments`"},
      {"{" MESSAGES ",\"tool_choice\":\"auto\"}", "BadRequestError", "tool_choice",
       "`tools` must be set"},
      {"{" MESSAGES ",\"chat_template_kwargs\":\"x\"}", "Bad Request", "body.chat_template_kwargs",
       "expected an object"},
      {"{" MESSAGES ",\"documents\":\"x\"}", "Bad Request", "body.documents", "expected a list"},
      {"{" MESSAGES ",\"top_logprobs\":2}", "BadRequestError", "top_logprobs",
       "`logprobs` must be set to true"},
      {"{" MESSAGES ",\"logprobs\":true,\"top_logprobs\":-2}", "BadRequestError", "top_logprobs",
       "positive value or -1"},
      {"{" MESSAGES ",\"logprobs\":5}", "Bad Request", "body.logprobs",
       "expected a boolean, found 5"},
      {"{" MESSAGES ",\"max_completion_tokens\":\"x\"}", "Bad Request",
       "body.max_completion_tokens", "found \"x\""},
      {"{" MESSAGES ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}",
       "BadRequestError", nullptr, "exactly one of"},
  };
  for (const Refusal& test : cases)
    ExpectRefused(ReadChatRequest(Parse(test.body), ServerConfig{}, true), test);
  // The error does not suggest flags, because they would not help: the model does not support
  // tools.
  const auto in_vain = ReadChatRequest(Parse("{" MESSAGES "," TOOLS "}"), ServerConfig{}, false);
  ASSERT_FALSE(in_vain);
  EXPECT_EQ(in_vain.error().status, 400);
  EXPECT_EQ(in_vain.error().message.find("Tools are not supported: "), 0u);
  ServerConfig calling;
  calling.enable_auto_tool_choice = true;
  calling.tool_call_parser = "hermes";
  const auto called = ReadChatRequest(
      Parse("{" MESSAGES "," TOOLS ",\"parallel_tool_calls\":false,\"include_reasoning\":false}"),
      calling, true);
  ASSERT_TRUE(called);
  EXPECT_EQ(called->tools.choice, ToolChoice::kAuto);
  EXPECT_FALSE(called->tools.parallel);
  EXPECT_FALSE(called->include_reasoning);
  const auto read = [&](const std::string& choice) {
    auto request = ReadChatRequest(Parse("{" MESSAGES "," TOOLS ",\"tool_choice\":" + choice + "}"),
                                   calling, true);
    EXPECT_TRUE(request) << choice;
    return *std::move(request);
  };
  EXPECT_EQ(read("\"required\"").tools.choice, ToolChoice::kRequired);
  EXPECT_EQ(read("\"any\"").tools.choice, ToolChoice::kRequired);
  const ChatRequest named = read(R"({"function":{"name":"f"}})");
  EXPECT_EQ(named.tools.choice, ToolChoice::kNamed);
  EXPECT_EQ(named.tools.name, "f");
  EXPECT_EQ(read("\"none\"").tools.choice, ToolChoice::kNone);
  EXPECT_TRUE(read("\"none\"").conversation.tools.is_array());
  calling.exclude_tools_when_tool_choice_none = true;
  EXPECT_TRUE(read("\"none\"").conversation.tools.is_null());
  EXPECT_TRUE(read("\"auto\"").conversation.tools.is_array());
  EXPECT_EQ(read("null").tools.choice, ToolChoice::kNone);
  const auto mapped = [&](const char* effort) {
    ServerConfig config;
    config.reasoning_efforts = {{"medium", "low"}, {"minimal", "none"}};
    const auto request = ReadChatRequest(
        Parse(std::string("{" MESSAGES ",\"reasoning_effort\":\"") + effort + "\"}"), config, true);
    return json::Write(request->conversation.chat_template_kwargs);
  };
  EXPECT_EQ(mapped("medium"), R"({"reasoning_effort":"low","enable_thinking":true})");
  EXPECT_EQ(mapped("minimal"), R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(mapped("high"), R"({"reasoning_effort":"high","enable_thinking":true})");
  for (const char* fine : {"{" MESSAGES "," TOOLS ",\"tool_choice\":\"none\"}",
                           "{" MESSAGES ",\"tools\":null}", R"({"messages":[{"role":"alien"}]})",
                           R"({"messages":[{"role":"assistant","content":null}]})",
                           "{" MESSAGES ",\"logprobs\":true,\"top_logprobs\":null}"}) {
    const auto request = ReadChatRequest(Parse(fine), ServerConfig{}, true);
    EXPECT_TRUE(request) << fine << request.error().message;
  }
  const auto both = ReadChatRequest(
      Parse("{" MESSAGES ",\"max_tokens\":3,\"max_completion_tokens\":6}"), ServerConfig{}, true);
  EXPECT_EQ(both->sampling.max_tokens, 6);
}

// OpenAI's tool choice allowed_tools: the model sees only those tools, and may or must call one.
TEST(RequestDecodingTest, AllowedToolsAreThoseTheModelKnows) {
  ServerConfig config;
  config.enable_auto_tool_choice = true;
  config.tool_call_parser = "hermes";
  const auto ask = [&](const std::string& choice) {
    return ReadChatRequest(
        Parse("{" MESSAGES R"(,"tools":[{"type":"function","function":{"name":"f"}},)"
              R"({"type":"function","function":{"name":"g"}},)"
              R"({"type":"function","function":{"name":"h"}}],"tool_choice":)" +
              choice + "}"),
        config, true);
  };
  const auto names = [&](const std::string& choice) {
    const auto request = ask(choice);
    EXPECT_TRUE(request) << (request ? "" : request.error().message);
    std::string all = request->tools.choice == ToolChoice::kRequired ? "must" : "may";
    EXPECT_TRUE(request->tools.choice == ToolChoice::kRequired ||
                request->tools.choice == ToolChoice::kAuto);
    for (const json::Value& tool : request->conversation.tools.as_array())
      all += " " + tool.Find("function")->Find("name")->as_string();
    return all;
  };
  EXPECT_EQ(names(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)"
                  R"({"type":"function","function":{"name":"h"}},)"
                  R"({"type":"function","function":{"name":"f"}}]}})"),
            "may f h");
  EXPECT_EQ(names(R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[)"
                  R"({"type":"function","function":{"name":"g"}}]}})"),
            "must g");
  EXPECT_EQ(
      names(R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]})"),
      "may g")
      << "as a response's choice";
  for (const auto& [choice, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"allowed_tools"})", "tool_choice.mode"},
           {R"({"type":"allowed_tools","allowed_tools":7})", "tool_choice.mode"},
           {R"({"type":"allowed_tools","mode":"none","tools":[]})", "tool_choice.mode"},
           {R"({"type":"allowed_tools","mode":"auto"})", "tool_choice.tools"},
           {R"({"type":"allowed_tools","mode":"auto","tools":[]})", "tool_choice.tools"},
           {R"({"type":"allowed_tools","mode":"auto","tools":[{"name":"g"},{"name":"x"}]})",
            "tool_choice.tools.1"},
           {R"({"type":"allowed_tools","mode":"auto","tools":["g"]})", "tool_choice.tools.0"}}) {
    const auto refused = ask(choice);
    ASSERT_FALSE(refused) << choice;
    EXPECT_EQ(refused.error().status, 400);
    EXPECT_EQ(refused.error().param, param) << choice;
  }
}

// Decoding any body returns a request, or an error in OpenAI's shape.
TEST(RequestFuzzTest, MutatedBodies) {
  const std::string seeds[] = {
      R"({"model":"m","prompt":["a",[1,2]],"max_tokens":8,"temperature":0.5,"stop":["x"],"logit_bias":{"1":2},"n":2})",
      "{" MESSAGES "," TOOLS
      ",\"tool_choice\":\"none\",\"logprobs\":true,\"top_logprobs\":2,\"stream\":true,"
      "\"stream_options\":{\"include_usage\":true},\"response_format\":{\"type\":\"text\"},"
      "\"documents\":[{}]}",
  };
  static constexpr std::string_view kBytes = "{}[]\",:0123456789-+.eE truefalsn\\u\x00\xFF\x80";
  uint64_t state = 12345;
  const auto random = [&] {
    return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33;
  };
  int decoded = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string body = seeds[i % 2];
    for (uint64_t j = 0, count = random() % 6; j < count; ++j) {
      const size_t at = random() % body.size();
      switch (random() % 3) {
        case 0: body[at] = kBytes[random() % kBytes.size()]; break;
        case 1: body.erase(at, random() % 8); break;
        default: body.insert(at, body.substr(random() % body.size(), random() % 16));
      }
      if (body.empty()) body = "{";
    }
    const auto value = ParseRequestBody(JsonRequest(body));
    if (!value) {
      EXPECT_EQ(value.error().status, 400);
      continue;
    }
    ++decoded;
    const auto completion = ReadCompletionRequest(*value, ServerConfig{});
    const auto chat = ReadChatRequest(*value, ServerConfig{}, true);
    for (const auto* error :
         {completion ? nullptr : &completion.error(), chat ? nullptr : &chat.error()}) {
      if (error == nullptr) continue;
      EXPECT_EQ(error->status, 400) << body;
      EXPECT_FALSE(error->message.empty()) << body;
      EXPECT_TRUE(json::Parse(ErrorBody(*error))) << body;
    }
  }
  EXPECT_GT(decoded, 1000);
}

TEST(RequestDecoding, Constraints) {
  ServerConfig config;
  const auto constraint = [&](std::string_view fields) {
    const auto request =
        ReadCompletionRequest(Parse(fmt::format(R"({{"prompt":"a",{}}})", fields).c_str()), config);
    EXPECT_TRUE(request) << fields << request.error().message;
    return request ? request->sampling.constraint : std::nullopt;
  };
  const struct {
    const char* fields;
    ConstraintKind kind;
    const char* text;
    const char* place;
  } cases[] = {
      {R"("response_format":{"type":"json_object"})", ConstraintKind::kJsonSchema,
       R"({"type":"object"})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"enum":[1]}}})",
       ConstraintKind::kJsonSchema, R"({"enum":[1]})", "response_format.json_schema.schema"},
      {R"("structured_outputs":{"json":"{\"enum\":[1]}"})", ConstraintKind::kJsonSchema,
       R"({"enum":[1]})", "structured_outputs.json"},
      {R"("structured_outputs":{"regex":"a+","json":null})", ConstraintKind::kRegex, "a+",
       "structured_outputs.regex"},
      {R"("structured_outputs":{"choice":["a","b"]})", ConstraintKind::kEbnf,
       R"(root ::= "a" | "b")", "structured_outputs.choice"},
      {R"("structured_outputs":{"grammar":"start: \"a\""})", ConstraintKind::kLark, "start: \"a\"",
       "structured_outputs.grammar"},
      {R"("guided_json":{"enum":[1]})", ConstraintKind::kJsonSchema, R"({"enum":[1]})",
       "guided_json"},
      {R"("guided_regex":"a+")", ConstraintKind::kRegex, "a+", "guided_regex"},
      {R"("guided_choice":["a"])", ConstraintKind::kEbnf, R"(root ::= "a")", "guided_choice"},
      {R"("guided_grammar":"root ::= \"a\"")", ConstraintKind::kEbnf, "root ::= \"a\"",
       "guided_grammar"},
      {R"("guided_decoding":{"ebnf":"root ::= \"a\""})", ConstraintKind::kEbnf, "root ::= \"a\"",
       "guided_decoding.ebnf"},
  };
  for (const auto& test : cases) {
    const auto found = constraint(test.fields);
    ASSERT_TRUE(found) << test.fields;
    EXPECT_EQ(found->spec.kind, test.kind) << test.fields;
    EXPECT_EQ(found->spec.text, test.text) << test.fields;
    EXPECT_EQ(found->place, test.place) << test.fields;
    EXPECT_TRUE(found->spec.any_whitespace);
  }
  EXPECT_FALSE(constraint(R"("response_format":{"type":"text"},"structured_outputs":null)"));
  EXPECT_FALSE(constraint(R"("structured_outputs":{"json_object":false})"));
  config.json_without_whitespace = true;
  EXPECT_FALSE(constraint(R"("response_format":{"type":"json_object"})")->spec.any_whitespace);
  config.dialect = ApiDialect::kVllm;
  EXPECT_TRUE(constraint(R"("guided_decoding":{"regex":"a"})")) << "never ignored";
}

}  // namespace
}  // namespace sluice
