// Decoding of request bodies: what is taken, what is refused, and in which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/api/python_text.h"
#include "server/api/request_body.h"

namespace sluice {
namespace {

using testing::HasSubstr;

HttpRequest JsonRequest(std::string body) {
  HttpRequest request;
  request.headers.push_back({"content-type", "application/json; charset=utf-8"});
  request.body = std::move(body);
  return request;
}

json::Value Parse(std::string_view text) {
  ApiResult<json::Value> value = ParseJsonAsPython(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

TEST(PythonTextTest, WritesAsPythonDoes) {
  EXPECT_EQ(PythonRepr("a"), "'a'");
  EXPECT_EQ(PythonRepr("it's"), "\"it's\"");
  EXPECT_EQ(PythonRepr("'\""), "'\\'\"'");
  EXPECT_EQ(PythonRepr("a\n\x01"), "'a\\n\\x01'");
  EXPECT_EQ(PythonFloat(3), "3.0");
  EXPECT_EQ(PythonInput(Parse("[1,2]")), "<list of 2 items>");
  EXPECT_EQ(PythonInput(Parse("{\"a\":1}")), "<dict of 1 items>");
  EXPECT_EQ(PythonInput(json::Value()), "None");
}

TEST(PythonTextTest, ReadsNumbersAsPythonDoes) {
  EXPECT_EQ(PythonInt(" 65"), 65);
  EXPECT_EQ(PythonInt("+65"), 65);
  EXPECT_EQ(PythonInt("065"), 65);
  EXPECT_EQ(PythonInt("1_0"), 10);
  EXPECT_EQ(PythonInt("\uFF16\uFF15"), 65);
  for (const char* bad : {"", "abc", "65.0", "1e1", "_1", "1_", "1__0", "+", "0x10"})
    EXPECT_FALSE(PythonInt(bad)) << bad;
  EXPECT_EQ(LaxInt(" 8 "), 8);
  EXPECT_EQ(LaxInt("8.0"), 8);
  for (const char* bad : {"8.5", "\u0663", "", "0x10"}) EXPECT_FALSE(LaxInt(bad)) << bad;
  EXPECT_EQ(PythonFloatFrom(".5"), 0.5);
  EXPECT_EQ(PythonFloatFrom("1_0.5"), 10.5);
  EXPECT_EQ(PythonFloatFrom("-1e-1"), -0.1);
  EXPECT_TRUE(std::isinf(*PythonFloatFrom("Infinity")));
  EXPECT_TRUE(std::isnan(*PythonFloatFrom("NaN")));
  for (const char* bad : {"", "x", "0x1", "+-1", "1_"}) EXPECT_FALSE(PythonFloatFrom(bad)) << bad;
}

TEST(PythonTextTest, KnowsUtf8) {
  EXPECT_TRUE(IsUtf8("a\u00E9\u6F22\U0001F9EE"));
  for (const char* bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE6\xBC"})
    EXPECT_FALSE(IsUtf8(bad));
  EXPECT_EQ(CountCharacters("a\u00E9\u6F22\U0001F9EE"), 4u);
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

TEST(RequestBodyTest, TakesWhatPythonTakes) {
  EXPECT_TRUE(std::isnan(Parse("{\"a\":NaN}").Find("a")->as_double()));
  EXPECT_TRUE(std::isinf(Parse("{\"a\":1e999}").Find("a")->as_double()));
  EXPECT_EQ(Parse("{\"a\":1,\"a\":2}").Find("a")->as_integer(), 2);
  EXPECT_EQ(Parse("{\"a\":\"\\ud800\"}").Find("a")->as_string(), "\xED\xA0\x80");
  EXPECT_EQ(Parse("{\"a\":\"\\ud83e\\uddee\", \"b\":NaN}").Find("a")->as_string(), "\U0001F9EE");
  const std::string wide("\xFF\xFE{\0\"\0a\0\"\0:\0001\0}\0", 16);
  const auto body = ParseRequestBody(JsonRequest(wide));
  ASSERT_TRUE(body);
  EXPECT_EQ(body->Find("a")->as_integer(), 1);
  EXPECT_TRUE(ParseRequestBody(JsonRequest("\xEF\xBB\xBF{}")));
  EXPECT_TRUE(ParseRequestBody(JsonRequest(""))->is_null());
}

TEST(RequestBodyTest, NamesThePlace) {
  const struct {
    const char* text;
    const char* place;
    const char* reason;
  } cases[] = {
      {R"({"model": "abacus", "prompt": )", "body.30", "Expecting value"},
      {R"({"model":"abacus","prompt":"a",})", "body.31",
       "Expecting property name enclosed in double quotes"},
      {"{", "body.1", "Expecting property name enclosed in double quotes"},
      {"{\"\u00E9\" 1}", "body.5", "Expecting ':' delimiter"},
      {"[1 2]", "body.3", "Expecting ',' delimiter"},
      {"{} x", "body.3", "Extra data"},
      {"{\"a\":\"b", "body.5", "Unterminated string"},
      {"{\"a\":\"\n\"}", "body.6", "Invalid control character at"},
  };
  for (const auto& test : cases) {
    const auto value = ParseJsonAsPython(test.text);
    ASSERT_FALSE(value) << test.text;
    EXPECT_EQ(value.error().type, "Bad Request");
    EXPECT_EQ(value.error().param, test.place) << test.text;
    EXPECT_THAT(value.error().message, HasSubstr(test.reason)) << test.text;
  }
}

TEST(RequestBodyTest, RefusesTheHostile) {
  const std::string hostile[] = {
      "{\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
      "{\"x\":" + std::string(5000, '9') + "}",
      "{\"x\":\"\xFF\"}",
  };
  for (const std::string& text : hostile) {
    const auto value = ParseJsonAsPython(text);
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().detail, "There was an error parsing the body");
  }
  std::string list = "[0";
  for (int i = 0; i < 1100000; ++i) list += ",0";
  EXPECT_FALSE(ParseJsonAsPython(list + "]"));
}

struct Refusal {
  const char* body;
  const char* type;
  const char* param;  // null: null
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

TEST(CompletionRequestTest, RefusesInVllmsWords) {
  const Refusal cases[] = {
      {"[]", "Bad Request", "body", "model_attributes_type"},
      {"null", "Bad Request", "body", "missing"},
      {R"({})", "BadRequestError", "prompt", "Either prompt or prompt_embeds must be provided"},
      {R"({"prompt":""})", "BadRequestError", "prompt", "(parameter=prompt)"},
      {R"({"prompt":[]})", "BadRequestError", nullptr, "at least one prompt"},
      {R"({"prompt":5})", "Bad Request", "body.prompt", "4 validation errors:"},
      {R"({"prompt":[1,"a"]})", "Bad Request", "body.prompt.1", "5 validation errors:"},
      {R"({"prompt":["a",[1]]})", "Bad Request", "body.prompt.0", "int_parsing"},
      {R"({"prompt":[1.5]})", "Bad Request", "body.prompt.0", "int_from_float"},
      {R"({"prompt":[-1]})", "Bad Request", "body.prompt.0", "'ctx': {'ge': 0}"},
      {R"({"prompt":[[[1]]]})", "Bad Request", "body.prompt.0", "body.prompt.0.0"},
      {R"({"prompt":"a","prompt_embeds":"AAAA"})", "BadRequestError", "prompt_embeds",
       "embeddings"},
      {R"({"prompt":"a","suffix":""})", "BadRequestError", "suffix", "suffix"},
      {R"({"prompt":"a","logprobs":"2"})", "BadRequestError", "logprobs",
       "`logprobs` must be an integer."},
      {R"({"prompt":"a","temperature":[]})", "Bad Request", "body.temperature", "float_type"},
      {R"({"prompt":"a","top_k":1.5})", "Bad Request", "body.top_k", "int_from_float"},
      {R"({"prompt":"a","seed":9223372036854775808})", "Bad Request", "body.seed",
       "9223372036854775807"},
      {R"({"prompt":"a","seed":"x"})", "Bad Request", "body.seed", "int_parsing"},
      {R"({"prompt":"a","n":null})", "Bad Request", "body.n", "int_type"},
      {R"({"prompt":"a","min_tokens":null})", "Bad Request", "body.min_tokens", "int_type"},
      {R"({"prompt":"a","bad_words":null})", "Bad Request", "body.bad_words", "list_type"},
      {R"({"prompt":"a","stop":5})", "Bad Request", "body.stop", "2 validation errors:"},
      {R"({"prompt":"a","stop":[1,2]})", "Bad Request", "body.stop", "body.stop.1"},
      {R"({"prompt":"a","stop":["1","2","3","4","5"]})", "Bad Request", "body.stop", "too_long"},
      {R"({"prompt":"a","stop_token_ids":[1.5]})", "Bad Request", "body.stop_token_ids.0",
       "int_from_float"},
      {R"({"prompt":"a","logit_bias":[]})", "Bad Request", "body.logit_bias", "dict_type"},
      {R"({"prompt":"a","ignore_eos":"2"})", "Bad Request", "body.ignore_eos", "bool_parsing"},
      {R"({"prompt":"a","truncate_prompt_tokens":-2})", "Bad Request",
       "body.truncate_prompt_tokens", "-1"},
      {R"({"prompt":"a","truncation_side":"middle"})", "Bad Request", "body.truncation_side",
       "'left' or 'right'"},
      {R"({"prompt":"a","stream_options":{"include_usage":true}})", "BadRequestError",
       "stream_options", "stream=True"},
      {R"({"prompt":"a","stream":true,"stream_options":"x"})", "Bad Request", "body.stream_options",
       "model_attributes_type"},
      {R"({"prompt":"a","stream":true,"prompt_logprobs":1})", "BadRequestError", "prompt_logprobs",
       "not available"},
      {R"({"prompt":"a","prompt_logprobs":-2})", "BadRequestError", "prompt_logprobs",
       "positive value or -1"},
      {R"({"prompt":"a","model":5})", "Bad Request", "body.model", "string_type"},
      {R"({"prompt":"a","cache_salt":""})", "BadRequestError", "cache_salt", "non-empty"},
      {R"({"prompt":"a","response_format":"json"})", "Bad Request", "body.response_format",
       "model_attributes_type"},
      {R"({"prompt":"a","response_format":{"type":"bogus"}})", "Bad Request",
       "body.response_format.type", "literal_error"},
      {R"({"prompt":"a","response_format":{"type":"json_schema"}})", "BadRequestError",
       "response_format", "json_schema"},
      {R"({"prompt":"a","response_format":{"type":"json_object"}})", "BadRequestError",
       "response_format", "not supported"},
      {R"({"prompt":"a","structured_outputs":{}})", "BadRequestError", nullptr,
       "none are specified"},
      {R"({"prompt":"a","structured_outputs":{"regex":"a","choice":["b"]}})", "BadRequestError",
       "structured_outputs", "one kind"},
      {R"({"prompt":"a","structured_outputs":{"regex":"a"}})", "BadRequestError",
       "structured_outputs", "not supported"},
      {R"({"prompt":"a","use_beam_search":true,"stream":true})", "BadRequestError", nullptr,
       "Streaming is not currently supported with beam search"},
      {R"({"prompt":"a","logprob_token_ids":[1]})", "BadRequestError", "logprob_token_ids",
       "must be set"},
      {R"({"prompt":"a","vllm_xargs":{"a":{"b":1}}})", "Bad Request", "body.vllm_xargs.a",
       "string_type"},
      {R"({"prompt":"a","watermarking":{"a":1}})", "Bad Request", "body.watermarking", "bool_type"},
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
  decode(
      R"({"prompt":"a","best_of":0,"foo":1,"max_completion_tokens":"x","guided_choice":["a"],"user":"u"})");
  decode(
      R"({"prompt":"a","response_format":{"type":"text"},"kv_transfer_params":{"do_remote_decode":false}})");
  const auto usage =
      decode(R"({"prompt":"a","stream":true,"stream_options":{"continuous_usage_stats":true}})");
  EXPECT_FALSE(usage.sampling.include_usage);
  EXPECT_FALSE(usage.sampling.continuous_usage_stats);
}

TEST(ChatRequestTest, RefusesInVllmsWords) {
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
  const Refusal cases[] = {
      {R"({})", "Bad Request", "body.messages", "missing"},
      {R"({"messages":null})", "BadRequestError", nullptr, "messages"},
      {R"({"messages":{}})", "Bad Request", "body.messages", "list_type"},
      {R"({"messages":["hi"]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam", "dict_type"},
      {R"({"messages":[{}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.content", "missing"},
      {R"({"messages":[{"role":"user","content":null}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.content", "string_type"},
      {R"({"messages":[{"content":"a"}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.role", "missing"},
      {R"({"messages":[{"role":5,"content":"a"}]})", "Bad Request",
       "body.messages.0.ChatCompletionDeveloperMessageParam.role", "literal_error"},
      {"{" MESSAGES ",\"tools\":[]}", "BadRequestError", "tools", "empty array"},
      {"{" MESSAGES ",\"tools\":\"x\"}", "Bad Request", "body.tools", "list_type"},
      {"{" MESSAGES ",\"tools\":[{\"type\":\"bogus\"}]}", "Bad Request", "body.tools.0.type",
       "literal_error"},
      {"{" MESSAGES ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "Bad Request",
       "body.tools.0.function.name", "missing"},
      {"{" MESSAGES "," TOOLS "}", "BadRequestError", nullptr, "\"auto\" tool choice requires"},
      {"{" MESSAGES "," TOOLS ",\"tool_choice\":\"required\"}", "BadRequestError", nullptr,
       "requires --tool-call-parser"},
      {"{" MESSAGES "," TOOLS ",\"tool_choice\":\"bogus\"}", "BadRequestError", "tool_choice",
       "bogus"},
      {"{" MESSAGES "," TOOLS
       ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
       "BadRequestError", "tool_choice", "does not match"},
      {"{" MESSAGES ",\"tool_choice\":\"auto\"}", "BadRequestError", "tool_choice",
       "`tools` must be set"},
      {"{" MESSAGES ",\"chat_template_kwargs\":\"x\"}", "Bad Request", "body.chat_template_kwargs",
       "dict_type"},
      {"{" MESSAGES ",\"documents\":\"x\"}", "Bad Request", "body.documents", "list_type"},
      {"{" MESSAGES ",\"top_logprobs\":2}", "BadRequestError", "top_logprobs",
       "`logprobs` must be set to true"},
      {"{" MESSAGES ",\"logprobs\":true,\"top_logprobs\":-2}", "BadRequestError", "top_logprobs",
       "positive value or -1"},
      {"{" MESSAGES ",\"logprobs\":5}", "Bad Request", "body.logprobs", "bool_parsing"},
      {"{" MESSAGES ",\"max_completion_tokens\":\"x\"}", "Bad Request",
       "body.max_completion_tokens", "int_parsing"},
      {"{" MESSAGES ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}",
       "BadRequestError", nullptr, "one kind"},
  };
  for (const Refusal& test : cases)
    ExpectRefused(ReadChatRequest(Parse(test.body), ServerConfig{}), test);
  for (const char* fine : {"{" MESSAGES "," TOOLS ",\"tool_choice\":\"none\"}",
                           "{" MESSAGES ",\"tools\":null}", R"({"messages":[{"role":"alien"}]})",
                           R"({"messages":[{"role":"assistant","content":null}]})",
                           "{" MESSAGES ",\"logprobs\":true,\"top_logprobs\":null}"}) {
    const auto request = ReadChatRequest(Parse(fine), ServerConfig{});
    EXPECT_TRUE(request) << fine << request.error().message;
  }
  const auto both = ReadChatRequest(
      Parse("{" MESSAGES ",\"max_tokens\":3,\"max_completion_tokens\":6}"), ServerConfig{});
  EXPECT_EQ(both->sampling.max_tokens, 6);
}

// Whatever a body looks like, decoding ends in a request or an error in the OpenAI shape.
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
    const auto chat = ReadChatRequest(*value, ServerConfig{});
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

}  // namespace
}  // namespace sluice
