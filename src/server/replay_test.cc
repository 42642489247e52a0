// Tests two properties of every format of tool calls, in all APIs, with the answer split after
// every token: an answer assembled from its stream equals the whole answer, and the answer is
// accepted in the history of a later request.
#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_lines.h"
#include "base/source_path_testing.h"
#include "parsers/parser_table.h"
#include "server/api/common/python_text.h"
#include "server/server_testing.h"

namespace sluice {
namespace {

using JsonObject = json::Value::Object;
using JsonArray = json::Value::Array;

constexpr int32_t kEndToken = 510;  // <|eot_id|>

// Three ways in which published templates render the arguments of a call. Each fails, or renders
// them differently, for some kinds of arguments.
constexpr const char* kCallTemplates[] = {
    "{{ c.function.arguments | tojson }}",
    "{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}",
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}",
    "{{ '```json' + c.function.arguments + '```' }}",
};

std::string ConversationTemplate(std::string_view call) {
  return fmt::format(
      "{{% for m in messages %}}{{{{ m.role }}}}:{{{{ m.content }}}}"
      "{{% for c in m.tool_calls or [] %}}{{{{ c.function.name }}}}({}){{% endfor %}}\n"
      "{{% endfor %}}{{{{ tools | length if tools else 0 }}}}",
      call);
}

// Appends `piece` to a member, as clients do.
void Grow(json::Value& object, std::string_view name, const json::Value* piece) {
  if (piece == nullptr || piece->is_null()) return;
  const json::Value* before = object.Find(name);
  object.Set(name, (before == nullptr || !before->is_string() ? "" : before->as_string()) +
                       piece->as_string());
}

bool IsText(const json::Value* value) {
  return value != nullptr && value->is_string() && !value->as_string().empty();
}

std::string TextOrNone(const json::Value& object, std::string_view name) {
  const json::Value* value = object.Find(name);
  return IsText(value) ? value->as_string() : "";
}

// Returns the content of a chat's choice as text; "" and null are equal.
std::string Said(const json::Value& message) {
  std::string said = fmt::format("content {} reasoning {}", TextOrNone(message, "content"),
                                 TextOrNone(message, "reasoning"));
  if (const json::Value* calls = message.Find("tool_calls")) {
    for (const json::Value& call : calls->as_array())
      said += fmt::format(" call {} {}", At(call, {"function", "name"}).as_string(),
                          At(call, {"function", "arguments"}).as_string());
  }
  return said;
}

struct Assembled {
  json::Value message{JsonObject{{"role", "assistant"}, {"content", nullptr}}};
  std::string finish;    // includes the stop reason
  std::string logprobs;  // JSON of the elements of "logprobs", without brackets
  std::string usage;
};

// Assembles the chunks of a chat as clients do.
Assembled AssembleChat(const ServerAnswer& answer) {
  Assembled whole;
  JsonArray calls;
  for (const json::Value& event : answer.events()) {
    if (const json::Value* usage = event.Find("usage"); usage != nullptr && usage->is_object())
      whole.usage = json::Write(*usage->Find("completion_tokens"));
    for (const json::Value& choice : event.Find("choices")->as_array()) {
      const json::Value& delta = *choice.Find("delta");
      Grow(whole.message, "content", delta.Find("content"));
      Grow(whole.message, "reasoning", delta.Find("reasoning"));
      if (const json::Value* finish = choice.Find("finish_reason"); IsText(finish))
        whole.finish = finish->as_string() + json::Write(*choice.Find("stop_reason"));
      if (const json::Value& tokens = At(choice, {"logprobs", "content"}); tokens.is_array()) {
        for (const json::Value& token : tokens.as_array()) whole.logprobs += json::Write(token);
      }
      const json::Value* pieces = delta.Find("tool_calls");
      for (const json::Value& piece : pieces == nullptr ? JsonArray() : pieces->as_array()) {
        const json::Value& function = *piece.Find("function");
        const auto index = static_cast<size_t>(piece.Find("index")->as_integer());
        EXPECT_LE(index, calls.size());
        if (index == calls.size()) {
          EXPECT_TRUE(IsText(piece.Find("id")));
          EXPECT_TRUE(IsText(function.Find("name")));
          EXPECT_NE(function.Find("arguments"), nullptr) << "the first piece of a call";
          calls.push_back(JsonObject{{"id", *piece.Find("id")},
                                     {"type", "function"},
                                     {"function", JsonObject{{"name", *function.Find("name")}}}});
        }
        json::Value grown = *calls[index].Find("function");
        Grow(grown, "arguments", function.Find("arguments"));
        calls[index].Set("function", grown);
      }
    }
  }
  if (!calls.empty()) whole.message.Set("tool_calls", std::move(calls));
  return whole;
}

// Returns the items of a response, without the parts that differ between answers.
std::string Items(const json::Value& output) {
  std::string items;
  for (const json::Value& item : output.as_array()) {
    items += fmt::format("{} {} {} {} ", TextOrNone(item, "type"), TextOrNone(item, "status"),
                         TextOrNone(item, "name"), TextOrNone(item, "arguments"));
    if (const json::Value* parts = item.Find("content"); parts != nullptr && parts->is_array())
      items += json::Write(*parts);
  }
  return items;
}

// Returns the input of a call as clients read it: always an object.
json::Value InputOf(const std::string& text) {
  const Result<json::Value> input = json::Parse(text);
  return input && input->is_object() ? *input : json::Value(JsonObject{});
}

// Returns the blocks of a stream of /v1/messages, and how it ends.
std::pair<JsonArray, std::string> AssembleBlocks(const ServerAnswer& answer) {
  JsonArray blocks;
  std::string end, input;
  for (const json::Value& event : answer.events()) {
    const std::string type = At(event, {"type"}).as_string();
    if (type == "content_block_start") {
      blocks.push_back(*event.Find("content_block"));
      input.clear();
    } else if (type == "content_block_delta") {
      const json::Value& delta = *event.Find("delta");
      for (const char* name : {"text", "thinking", "signature"})
        Grow(blocks.back(), name, delta.Find(name));
      if (const json::Value* piece = delta.Find("partial_json")) input += piece->as_string();
    } else if (type == "content_block_stop" && TextOrNone(blocks.back(), "type") == "tool_use") {
      blocks.back().Set("input", InputOf(input));
    } else if (type == "message_delta") {
      end = json::Write(*event.Find("delta")->Find("stop_reason")) +
            json::Write(At(event, {"usage", "output_tokens"}));
    }
  }
  return {std::move(blocks), std::move(end)};
}

std::string Blocks(const JsonArray& blocks) {
  std::string said;
  for (const json::Value& block : blocks) {
    said += fmt::format("{} {}{}{} ", TextOrNone(block, "type"), TextOrNone(block, "text"),
                        TextOrNone(block, "thinking"), TextOrNone(block, "name"));
    if (const json::Value* input = block.Find("input")) said += json::Write(*input);
  }
  return said;
}

std::vector<std::string> AllToolParsers() {
  std::vector<std::string> names;
  for (const ToolParser& parser : ToolParsers()) names.emplace_back(parser.name);
  return names;
}

class ReplayTest : public ServerTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Returns at most `most` recorded texts with calls in the parser's format, in random order; the
  // parser's example if there are none.
  std::vector<std::string> Texts(size_t most) {
    std::vector<std::string> texts;
    const std::string file =
        ReadFile(SourcePath("tests/data/parsers/cases.jsonl"), 1 << 24).value();
    const auto take = [&](const json::Value& row, int64_t) -> Status {
      const bool is_own = TextOrNone(row, "tool_parser") == GetParam() &&
                          row.Find("reasoning_parser") == nullptr && row.Find("calls") != nullptr;
      const std::string text = row.Find("text")->as_string();
      if (is_own && text.size() < 300) texts.push_back(text);
      return {};
    };
    EXPECT_TRUE(json::ForEachLine(file, "cases.jsonl", {}, take));
    if (texts.empty()) texts.emplace_back(FindToolParser(GetParam())->example);
    std::ranges::shuffle(texts, random_);
    if (texts.size() > most) texts.resize(most);
    return texts;
  }

  // Changes one byte in about half of the texts.
  std::string Mutated(std::string text) {
    if (random_() % 2 == 0) return text;
    char& byte = text[random_() % text.size()];
    if (byte > 0) byte = "{}[]\",:<x"[random_() % 9];
    return text;
  }

  const ReasoningParser* SomeReasoningParser() {
    std::vector<const ReasoningParser*> fitting = {nullptr};
    for (const ReasoningParser& parser : ReasoningParsers()) {
      if (CheckParsersAgree(FindToolParser(GetParam()), &parser)) fitting.push_back(&parser);
    }
    return fitting[random_() % fitting.size()];
  }

  void StartWith(const ReasoningParser* reasoning) {
    ServerConfig config = DefaultConfig();
    config.enable_auto_tool_choice = true;
    config.tool_call_parser = GetParam();
    if (reasoning != nullptr) config.reasoning_parser = reasoning->name;
    config.chat_template = ConversationTemplate(kCallTemplates[random_() % 4]);
    engine_.mutable_info().max_model_len = 1 << 14;
    Start(std::move(config));
    ASSERT_NE(server_, nullptr);
    engine_.script = [this](const Request&) {
      return FakeEngine::Script{tokens_, FinishReason::kStop, kEndToken};
    };
  }

  void Say(const std::string& text) {
    const auto tokenizer = Tokenizer::Load(kServerTestModel);
    ASSERT_TRUE(tokenizer);
    tokens_ = (*tokenizer)->Encode(text, /*add_special_tokens=*/false);
    tokens_.push_back(kEndToken);
  }

  ServerAnswer Post(const std::string& path, const json::Value& fields) {
    json::Value body = fields;
    body.Set("model", "abacus");
    return Ask("POST", path, json::Write(body));
  }
  static json::Value With(json::Value body, std::string_view name, json::Value value) {
    body.Set(name, std::move(value));
    return body;
  }
  void Accepts(const std::string& path, json::Value body, std::string_view limit) {
    body.Set(limit, 1);
    const ServerAnswer answer = Post(path, body);
    EXPECT_EQ(answer.status, 200) << path << " refuses " << json::Write(body) << answer.body;
  }

  void CheckChat(int64_t limit) {
    const json::Value user(JsonObject{{"role", "user"}, {"content", "go"}});
    const json::Value body(JsonObject{
        {"messages", JsonArray{user}},
        {"tools", tools_},
        {"max_tokens", limit},
        {"logprobs", true},
        {"top_logprobs", 1},
    });
    const ServerAnswer whole = Post("/v1/chat/completions", body);
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Assembled streamed = AssembleChat(
        Post("/v1/chat/completions", With(With(body, "stream", true), "stream_options",
                                          json::Value(JsonObject{{"include_usage", true}}))));
    const json::Value answer = whole.json();
    const json::Value& choice = At(answer, {"choices", "0"});
    const json::Value& message = *choice.Find("message");
    EXPECT_EQ(Said(streamed.message), Said(message));
    EXPECT_EQ(streamed.finish,
              choice.Find("finish_reason")->as_string() + json::Write(*choice.Find("stop_reason")));
    EXPECT_EQ(streamed.usage, json::Write(At(answer, {"usage", "completion_tokens"})));
    std::string logprobs;
    for (const json::Value& token : At(choice, {"logprobs", "content"}).as_array())
      logprobs += json::Write(token);
    EXPECT_EQ(streamed.logprobs, logprobs);
    for (const json::Value& said : {message, streamed.message}) {
      JsonArray messages = {user, said};
      const json::Value* calls = said.Find("tool_calls");
      for (const json::Value& call : calls == nullptr ? JsonArray() : calls->as_array())
        messages.push_back(
            JsonObject{{"role", "tool"}, {"tool_call_id", *call.Find("id")}, {"content", "r"}});
      messages.push_back(user);
      Accepts("/v1/chat/completions",
              JsonObject{{"messages", std::move(messages)}, {"tools", tools_}}, "max_tokens");
    }
  }

  void CheckResponses(int64_t limit) {
    JsonArray flat;
    for (const json::Value& tool : tools_.as_array())
      flat.push_back(With(*tool.Find("function"), "type", "function"));
    const json::Value body(JsonObject{{"input", "go"},
                                      {"tools", flat},
                                      {"max_output_tokens", limit},
                                      {"include", JsonArray{"message.output_text.logprobs"}}});
    const json::Value whole = Post("/v1/responses", body).json();
    const std::vector<json::Value> events =
        Post("/v1/responses", With(body, "stream", true)).events();
    ASSERT_FALSE(events.empty());
    const json::Value& last = At(events.back(), {"response"});
    const std::string status = At(whole, {"status"}).as_string();
    EXPECT_EQ(At(events.back(), {"type"}).as_string(), "response." + status);
    EXPECT_EQ(At(last, {"status"}).as_string(), status);
    EXPECT_EQ(At(last, {"usage"}), At(whole, {"usage"}));
    EXPECT_EQ(At(last, {"incomplete_details"}), At(whole, {"incomplete_details"}));
    EXPECT_EQ(Items(At(last, {"output"})), Items(At(whole, {"output"})));
    JsonArray done;
    for (const json::Value& event : events) {
      if (At(event, {"type"}).as_string() == "response.output_item.done")
        done.push_back(*event.Find("item"));
    }
    EXPECT_EQ(json::Value(done), At(last, {"output"}));
    // Replaying the stored response gives the same result.
    const std::vector<json::Value> replay =
        Ask("GET", "/v1/responses/" + At(whole, {"id"}).as_string() + "?stream=true").events();
    EXPECT_EQ(At(replay.back(), {"type"}), At(events.back(), {"type"}));
    EXPECT_EQ(At(replay.back(), {"response"}), whole);
    const json::Value user(JsonObject{{"role", "user"}, {"content", "go"}});
    for (const JsonArray& said : {At(whole, {"output"}).as_array(), done}) {
      JsonArray input = {user};
      input.insert(input.end(), said.begin(), said.end());
      for (const json::Value& item : said) {
        if (TextOrNone(item, "type") == "function_call")
          input.push_back(JsonObject{{"type", "function_call_output"},
                                     {"call_id", *item.Find("call_id")},
                                     {"output", "r"}});
      }
      input.push_back(user);
      Accepts("/v1/responses", JsonObject{{"input", std::move(input)}, {"tools", flat}},
              "max_output_tokens");
    }
  }

  void CheckMessages(int64_t limit) {
    JsonArray tools;
    for (const json::Value& tool : tools_.as_array())
      tools.push_back(JsonObject{{"name", At(tool, {"function", "name"})},
                                 {"input_schema", At(tool, {"function", "parameters"})}});
    const json::Value user(JsonObject{{"role", "user"}, {"content", "go"}});
    const json::Value body(
        JsonObject{{"messages", JsonArray{user}}, {"tools", tools}, {"max_tokens", limit}});
    const json::Value whole = Post("/v1/messages", body).json();
    const auto [blocks, end] = AssembleBlocks(Post("/v1/messages", With(body, "stream", true)));
    const JsonArray& content = At(whole, {"content"}).as_array();
    EXPECT_EQ(Blocks(blocks), Blocks(content));
    EXPECT_EQ(end, json::Write(At(whole, {"stop_reason"})) +
                       json::Write(At(whole, {"usage", "output_tokens"})));
    for (const JsonArray& said : {content, blocks}) {
      JsonArray results;
      for (const json::Value& block : said) {
        if (TextOrNone(block, "type") == "tool_use")
          results.push_back(JsonObject{
              {"type", "tool_result"}, {"tool_use_id", *block.Find("id")}, {"content", "r"}});
      }
      results.push_back(JsonObject{{"type", "text"}, {"text", "go"}});
      const json::Value answer(JsonObject{{"role", "assistant"}, {"content", said}});
      const json::Value next(JsonObject{{"role", "user"}, {"content", results}});
      Accepts("/v1/messages",
              JsonObject{{"messages", JsonArray{user, answer, next}}, {"tools", tools}},
              "max_tokens");
    }
  }

  std::mt19937 random_{5};
  std::vector<int32_t> tokens_;
  const json::Value tools_ =
      json::Parse(ReadFile(SourcePath("tests/data/parsers/tools.json"), 1 << 20).value()).value();
};

TEST_P(ReplayTest, WhatIsSentIsAcceptedAndAStreamSaysTheWholeAnswer) {
  random_.seed(static_cast<uint32_t>(std::hash<std::string>()(GetParam())));
  const ReasoningParser* const reasoning = SomeReasoningParser();
  StartWith(reasoning);
  for (const std::string& text : Texts(2)) {
    std::string said = Mutated(text);
    if (reasoning != nullptr && !reasoning->format.start.empty() &&
        !reasoning->format.end.empty() && reasoning->channels == nullptr)
      said = reasoning->format.start[0] + "Caf\u00E9?" + reasoning->format.end[0] + said;
    SCOPED_TRACE(fmt::format("{} as {}", said, reasoning == nullptr ? "-" : reasoning->name));
    Say(said);
    const auto size = static_cast<int64_t>(tokens_.size());
    const auto first = static_cast<int64_t>(random_() % 4);
    for (int64_t limit = 1; limit <= size; ++limit) {
      SCOPED_TRACE(fmt::format("{} of {} tokens", limit, size));
      CheckChat(limit);
      if ((limit + first) % 4 == 0 || limit == size) {
        CheckResponses(limit);
        CheckMessages(limit);
      }
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parsers, ReplayTest, ::testing::ValuesIn(AllToolParsers()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class CompletionReplayTest : public ServerTest {
 protected:
  std::mt19937 random_{23};
};

// Logprobs of a completion: they are the same in a stream, and each token's text is at its offset.
TEST_F(CompletionReplayTest, OffsetsPointIntoTheText) {
  Start();
  const std::vector<std::string> prompts = {R"("The abacus")", R"("caf\u00e9 \ud83e\uddee.")",
                                            "[64,65,226]", "[510,342,82]"};
  std::vector<int32_t> tokens;
  engine_.script = [&](const Request&) {
    return FakeEngine::Script{tokens, FinishReason::kStop, kEndToken};
  };
  for (int round = 0; round < 150; ++round) {
    tokens.clear();
    const bool shows_special = random_() % 3 == 0;
    // Returns random words, single bytes (some of which are not valid UTF-8) and special tokens. If
    // special tokens are hidden, none follows a byte, because the bytes before and after a hidden
    // token would form one text.
    for (size_t i = random_() % 12; i > 0; --i) {
      const bool hides = !shows_special && !tokens.empty() && tokens.back() < 256;
      const auto kind = hides ? 7 : random_() % 8;
      tokens.push_back(kind == 0  ? static_cast<int32_t>(506 + random_() % 4)
                       : kind < 4 ? static_cast<int32_t>(random_() % 256)
                                  : static_cast<int32_t>(256 + random_() % 250));
    }
    tokens.push_back(kEndToken);
    const bool echo = random_() % 2 == 0;
    const bool ids = random_() % 4 == 0;
    const std::string fields = fmt::format(
        R"({{"model":"abacus","prompt":{},"max_tokens":{},"logprobs":2,"echo":{},"stop":{},)"
        R"("return_tokens_as_token_ids":{},"skip_special_tokens":{})",
        prompts[random_() % prompts.size()], 1 + random_() % 14, echo,
        random_() % 2 == 0 ? R"(["e","s t","\n"])" : "null", ids, !shows_special);
    SCOPED_TRACE(fields + " tokens " + ::testing::PrintToString(tokens));
    const ServerAnswer answer = Ask("POST", "/v1/completions", fields + "}");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::Value whole = answer.json();
    const json::Value& choice = At(whole, {"choices", "0"});
    const std::string& text = At(choice, {"text"}).as_string();
    const json::Value& logprobs = At(choice, {"logprobs"});

    const std::vector<json::Value> events =
        Ask("POST", "/v1/completions", fields + R"(,"stream":true})").events();
    EXPECT_EQ(ChunkText(events), text);
    json::Value joined(JsonObject{});
    for (const auto& [name, column] : logprobs.as_object()) {
      JsonArray list;
      for (const json::Value& event : events) {
        for (const json::Value& value : At(event, {"choices", "0", "logprobs", name}).as_array())
          list.push_back(value);
      }
      joined.Set(name, std::move(list));
    }
    EXPECT_EQ(json::Write(joined), json::Write(logprobs));
    EXPECT_EQ(At(events.back(), {"choices", "0", "finish_reason"}), At(choice, {"finish_reason"}));

    const JsonArray& offsets = At(logprobs, {"text_offset"}).as_array();
    const JsonArray& shown = At(logprobs, {"tokens"}).as_array();
    ASSERT_EQ(offsets.size(), shown.size());
    int64_t least = 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int64_t offset = offsets[i].as_integer();
      EXPECT_GE(offset, least);
      least = offset;
      const std::string_view before = TrimToCharacters(text, static_cast<size_t>(offset));
      EXPECT_EQ(CountCharacters(before), static_cast<size_t>(offset)) << "beyond the text";
      const std::string_view rest = std::string_view(text).substr(before.size());
      const std::string& token = shown[i].as_string();
      // A stop string, or a limit within a character, may end the text within a token.
      const bool is_special = token.find("<|") != std::string::npos;
      if (!ids && !is_special) {
        EXPECT_TRUE(rest.starts_with(token) || token.starts_with(rest))
            << token << " at " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
