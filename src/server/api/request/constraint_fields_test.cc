#include "server/api/request/constraint_fields.h"

#include <gtest/gtest.h>

#include "server/api/anthropic/messages_request.h"
#include "server/api/openai/chat_request.h"
#include "server/api/responses/responses_request.h"

namespace sluice {
namespace {

json::Value ParsedBody(const std::string& text) {
  auto value = json::Parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : json::Value();
}

struct Spelling {
  std::string fields;
  ConstraintKind kind;
  std::string text;  // text that the compiled constraint must contain
  std::string place;
};

constexpr char kSchema[] = R"({"type":"object","properties":{"apple":{"type":"integer"}}})";

std::vector<Spelling> Spellings() {
  const std::string schema = kSchema;
  const std::string quoted =
      R"("{\"type\":\"object\",\"properties\":{\"apple\":{\"type\":\"integer\"}}}")";
  const auto format = [](const std::string& members) {
    return R"("response_format":{)" + members + "}";
  };
  constexpr auto kJson = ConstraintKind::kJsonSchema;
  constexpr auto kRegex = ConstraintKind::kRegex;
  constexpr auto kEbnf = ConstraintKind::kEbnf;
  return {
      {format(R"("type":"json_object","schema":)" + schema), kJson, "apple",
       "response_format.schema"},
      {format(R"("type":"json_object","schema":)" + quoted), kJson, "apple",
       "response_format.schema"},
      {format(R"("type":"json_object","json_schema":)" + schema), kJson, "apple",
       "response_format.json_schema"},
      {format(R"("type":"json_object","json_schema":{"name":"x","schema":)" + schema + "}"), kJson,
       "apple", "response_format.json_schema.schema"},
      {format(R"("type":"json_object","schema":null)"), kJson, "object", "response_format"},
      {format(R"("type":"json_schema","schema":)" + schema), kJson, "apple",
       "response_format.schema"},
      {format(R"("type":"json_schema","value":{"name":"x","schema":)" + schema + "}"), kJson,
       "apple", "response_format.value.schema"},
      {format(R"("type":"json","value":)" + schema), kJson, "apple", "response_format.value"},
      {format(R"("type":"json","schema":)" + schema), kJson, "apple", "response_format.schema"},
      {format(R"("type":"regex","value":"a+")"), kRegex, "a+", "response_format.value"},
      {format(R"("type":"regex","regex":"a+")"), kRegex, "a+", "response_format.regex"},
      {format(R"("type":"regex","regex":{"regex":"a+"})"), kRegex, "a+",
       "response_format.regex.regex"},
      {format(R"("type":"regex","pattern":"a+")"), kRegex, "a+", "response_format.pattern"},
      {format(R"("type":"regex_schema","regex_schema":"a+")"), kRegex, "a+",
       "response_format.regex_schema"},
      {format(R"("type":"grammar","grammar":"root ::= \"a\"")"), kEbnf, "root",
       "response_format.grammar"},
      {format(R"("type":"ebnf","ebnf":"root ::= \"a\"")"), kEbnf, "root", "response_format.ebnf"},
      {format(R"("type":"lark_grammar","lark_grammar":"start: \"a\"")"), ConstraintKind::kLark,
       "start", "response_format.lark_grammar"},
      {R"("grammar":"root ::= \"a\"")", kEbnf, "root", "grammar"},
      {R"("grammar":{"type":"regex","value":"a+"})", kRegex, "a+", "grammar.value"},
      {R"("grammar":{"type":"json","value":)" + schema + "}", kJson, "apple", "grammar.value"},
      {R"("grammar":{"type":"lark","value":"start: \"a\""})", ConstraintKind::kLark, "start",
       "grammar.value"},
      {R"("ebnf":"root ::= \"a\"")", kEbnf, "root", "ebnf"},
      {R"("regex":"a+")", kRegex, "a+", "regex"},
      {R"("regex_pattern":"a+")", kRegex, "a+", "regex_pattern"},
      {R"("grammar_string":"root ::= \"a\"")", kEbnf, "root", "grammar_string"},
      {R"("json_schema":)" + schema, kJson, "apple", "json_schema"},
      {R"("json_schema":)" + quoted, kJson, "apple", "json_schema"},
      {R"("structural_tag":{"type":"structural_tag","format":{"type":"const_string","value":"a"}})",
       ConstraintKind::kStructuralTag, "const_string", "structural_tag"},
      {R"("format":"json")", kJson, "object", "format"},
      {R"("format":)" + schema, kJson, "apple", "format"},
      {R"("guided_json_object":true)", kJson, "object", "guided_json_object"},
      {R"("guided_decoding":{"regex":"a+"})", kRegex, "a+", "guided_decoding.regex"},
      {R"("nvext":{"guided_choice":["a","b"]})", kEbnf, "\"b\"", "nvext.guided_choice"},
  };
}

TEST(ConstraintFieldsTest, TakesWhatOtherServersCallThem) {
  for (const ApiDialect dialect : {ApiDialect::kSluice, ApiDialect::kVllm}) {
    ServerConfig config;
    config.dialect = dialect;
    for (const Spelling& spelling : Spellings()) {
      const auto read =
          ReadConstraint(ParsedBody("{" + spelling.fields + "}"), config, EndpointKind::kChat);
      ASSERT_TRUE(read) << spelling.fields << ": " << read.error().message;
      ASSERT_TRUE(*read) << spelling.fields;
      EXPECT_EQ((*read)->spec.kind, spelling.kind) << spelling.fields;
      EXPECT_NE((*read)->spec.text.find(spelling.text), std::string::npos) << (*read)->spec.text;
      EXPECT_EQ((*read)->place, spelling.place);
    }
  }
}

TEST(ConstraintFieldsTest, WhatMeansNothingIsNoConstraint) {
  for (const char* none :
       {R"({"grammar":"","format":"","regex":null,"json_schema":null,"nvext":{}})",
        R"({"response_format":{"type":"text"},"grammar_lazy":false,"grammar_triggers":[]})",
        R"({"guided_json_object":false,"guided_decoding":{}})"}) {
    const auto read = ReadConstraint(ParsedBody(none), ServerConfig(), EndpointKind::kChat);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_FALSE(*read) << none;
  }
}

TEST(ConstraintFieldsTest, WhatIsUnclearIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"response_format":{"type":"json"}})", "response_format.value"},
      {R"({"response_format":{"type":"regex"}})", "response_format.value"},
      {R"({"response_format":{"type":"regex","value":5}})", "response_format.value"},
      {R"({"response_format":{"type":"json_object","schema":5}})", "response_format.schema"},
      {R"({"response_format":{"type":"yaml"}})", "response_format.type"},
      {R"({"grammar":{"type":"xml","value":"a"}})", "grammar.type"},
      {R"({"grammar":{"type":"regex"}})", "grammar.value"},
      {R"({"grammar":7})", "grammar"},
      {R"({"regex":["a"]})", "regex"},
      {R"x({"regex":"(?=a)"})x", "regex"},
      {R"({"json_schema":"{"})", "json_schema"},
      {R"({"format":"yaml"})", "format"},
      {R"({"grammar":"root ::= \"a\"","grammar_lazy":true})", "grammar_lazy"},
      {R"({"grammar_triggers":[{"type":0}]})", "grammar_triggers"},
      {R"({"regex":"a","ebnf":"root ::= \"a\""})", "regex, ebnf; omit all but one"},
      {R"({"response_format":{"type":"json_object"},"grammar":"root ::= \"a\""})",
       "response_format, grammar; omit all but one"},
  };
  for (const auto& [body, name] : cases) {
    const auto read = ReadConstraint(ParsedBody(body), ServerConfig(), EndpointKind::kChat);
    ASSERT_FALSE(read) << body;
    EXPECT_EQ(read.error().status, 400) << body;
    const std::string said = read.error().message + " " + read.error().param.value_or("");
    EXPECT_NE(said.find(name), std::string::npos) << said;
  }
}

TEST(ConstraintFieldsTest, EveryApiReadsThem) {
  const auto message = ChatBodyOf(
      ParsedBody(R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"}],)"
                 R"("regex":"a+"})"),
      ServerConfig(), MessagesEndpoint::kMessages);
  ASSERT_TRUE(message) << message.error().message;
  ASSERT_NE(message->Find("regex"), nullptr);
  const std::string both =
      std::string(R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"}],)") +
      R"("response_format":{"type":"json_object"},"output_config":{"format":{"type":"json_schema",)" +
      R"("schema":)" + kSchema + "}}}";
  EXPECT_FALSE(ChatBodyOf(ParsedBody(both), ServerConfig(), MessagesEndpoint::kMessages));
  for (const std::string& format :
       {std::string(R"("text":{"format":{"type":"json_object","schema":)") + kSchema + "}}",
        std::string(R"("grammar":{"type":"json","value":)") + kSchema + "}"}) {
    const auto response =
        ReadResponsesRequest(ParsedBody(R"({"input":"a",)" + format + "}"), ServerConfig());
    ASSERT_TRUE(response) << response.error().message;
    ASSERT_TRUE(response->chat.sampling.constraint) << format;
    EXPECT_NE(response->chat.sampling.constraint->spec.text.find("apple"), std::string::npos);
  }
}

TEST(ConstraintFieldsTest, NamesThem) {
  for (const char* name : {"response_format", "grammar", "nvext", "structural_tag", "format"})
    EXPECT_TRUE(IsConstraintField(name)) << name;
  EXPECT_FALSE(IsConstraintField("messages"));
}

}  // namespace
}  // namespace sluice
