// /v1/responses over sockets: answers, streams, and stored responses.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Answer = ServerAnswer;

class ResponsesTest : public ServerTest {
 protected:
  Answer Create(const std::string& fields, const std::string& headers = "") {
    return Ask("POST", "/v1/responses", R"({"model":"abacus",)" + fields + "}", headers);
  }
  static std::string IdOf(const json::Value& response) { return At(response, {"id"}).as_string(); }
  static std::string TextOf(const json::Value& response) {
    return At(response, {"output", "0", "content", "0", "text"}).as_string();
  }
  static std::string StatusOf(const json::Value& response) {
    return At(response, {"status"}).as_string();
  }
  // Returns the types of the events; consecutive equal types count once.
  static std::vector<std::string> Types(const Answer& answer) {
    std::vector<std::string> types;
    for (const json::Value& event : answer.events()) {
      const std::string type = At(event, {"type"}).as_string().substr(9);  // "response."
      if (types.empty() || types.back() != type) types.push_back(type);
    }
    return types;
  }
  // Returns the error of `answer`: status, type, param.
  static std::string ErrorOf(const Answer& answer) {
    const json::Value body = answer.json();
    const json::Value& param = At(body, {"error", "param"});
    return fmt::format("{} {} {}", answer.status, At(body, {"error", "type"}).as_string(),
                       param.is_string() ? param.as_string() : "null");
  }
  // Returns the tokens that the engine received.
  std::string PromptOf(size_t request) {
    return fmt::format("{}", fmt::join(engine_.requests().at(request).prompt, " "));
  }
};

TEST_F(ResponsesTest, AnswersText) {
  Start();
  const Answer answer =
      Create(R"("input":"The abacus counts the beads","max_output_tokens":3,"temperature":0.5,)"
             R"("metadata":{"k":"v"},"instructions":"Count")");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::Value body = answer.json();
  EXPECT_EQ(Keys(body),
            "id created_at incomplete_details instructions metadata model object output "
            "parallel_tool_calls temperature tool_choice tools top_p background max_output_tokens "
            "max_tool_calls previous_response_id prompt reasoning service_tier status text "
            "top_logprobs truncation usage user presence_penalty frequency_penalty "
            "kv_transfer_params ec_transfer_params input_messages output_messages ");
  EXPECT_THAT(IdOf(body), ::testing::StartsWith("resp_"));
  EXPECT_EQ(StatusOf(body), "incomplete");  // the engine's script ends with finish reason "length"
  EXPECT_EQ(At(body, {"incomplete_details", "reason"}), json::Value("max_output_tokens"));
  EXPECT_EQ(At(body, {"instructions"}), json::Value("Count"));
  EXPECT_EQ(At(body, {"metadata", "k"}), json::Value("v"));
  EXPECT_EQ(At(body, {"temperature"}), json::Value(0.5));
  EXPECT_EQ(At(body, {"tool_choice"}), json::Value("none"));
  EXPECT_EQ(At(body, {"max_output_tokens"}), json::Value(3));
  EXPECT_EQ(At(body, {"usage", "output_tokens"}), json::Value(3));
  EXPECT_EQ(At(body, {"usage", "total_tokens"}).as_integer(),
            At(body, {"usage", "input_tokens"}).as_integer() + 3);
  EXPECT_FALSE(TextOf(body).empty());
}

TEST_F(ResponsesTest, StreamsTheSameAnswer) {
  Start();
  const std::string fields =
      R"("input":[{"role":"user","content":"beads"}],"include":["message.output_text.logprobs"],)"
      R"("top_logprobs":1)";
  const json::Value whole = Create(fields).json();
  const Answer stream = Create(fields + R"(,"stream":true)");
  EXPECT_THAT(stream.head, HasSubstr("content-type: text/event-stream"));
  EXPECT_THAT(Types(stream),
              ElementsAre("created", "in_progress", "output_item.added", "content_part.added",
                          "output_text.delta", "output_text.done", "content_part.done",
                          "output_item.done", "incomplete"));
  const std::vector<json::Value> events = stream.events();
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(At(events[i], {"sequence_number"}), json::Value(static_cast<int64_t>(i)));
    const json::Value* delta = events[i].Find("delta");
    if (delta == nullptr) continue;
    text += delta->as_string();
    EXPECT_EQ(Keys(At(events[i], {"logprobs", "0"})), "token logprob top_logprobs ");
  }
  EXPECT_EQ(text, TextOf(whole));
  const json::Value& last = At(events.back(), {"response"});
  EXPECT_EQ(TextOf(last), text);
  EXPECT_EQ(At(last, {"usage"}), At(whole, {"usage"}));
  EXPECT_EQ(At(whole, {"output", "0", "content", "0", "logprobs"}).as_array().size(), 3u);
  EXPECT_EQ(Keys(At(whole, {"output", "0", "content", "0", "logprobs", "0"})),
            "token logprob bytes top_logprobs ");
}

TEST_F(ResponsesTest, StoresAndForgets) {
  Start();
  const json::Value made = Create(R"("input":"beads")").json();
  const std::string path = "/v1/responses/" + IdOf(made);
  EXPECT_EQ(Ask("GET", path).json(), made);
  const json::Value items = Ask("GET", path + "/input_items").json();
  EXPECT_EQ(At(items, {"data", "0", "content", "0", "text"}), json::Value("beads"));
  EXPECT_EQ(At(items, {"first_id"}), At(items, {"data", "0", "id"}));
  EXPECT_EQ(At(items, {"has_more"}), json::Value(false));
  // A stream of the stored response has the same result.
  const Answer replay = Ask("GET", path + "?stream=true");
  EXPECT_EQ(Types(replay).front(), "created");
  EXPECT_EQ(At(replay.events().back(), {"response"}), made);
  const Answer rest = Ask("GET", path + "?stream=true&starting_after=3");
  EXPECT_EQ(rest.events().size(), replay.events().size() - 4);
  EXPECT_EQ(ErrorOf(Ask("POST", path + "/cancel")), "400 invalid_request_error response_id");
  EXPECT_EQ(Ask("DELETE", path).body,
            fmt::format(R"({{"id":"{}","object":"response","deleted":true}})", IdOf(made)));
  for (const char* method : {"GET", "DELETE"})
    EXPECT_EQ(ErrorOf(Ask(method, path)), "404 invalid_request_error response_id");
  const json::Value unstored = Create(R"("input":"beads","store":false)").json();
  EXPECT_EQ(Ask("GET", "/v1/responses/" + IdOf(unstored)).status, 404);
}

TEST_F(ResponsesTest, PagesInputItems) {
  Start();
  const json::Value made =
      Create(R"("input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
             R"({"role":"user","content":"c"}])")
          .json();
  const std::string path = "/v1/responses/" + IdOf(made) + "/input_items";
  const json::Value first = Ask("GET", path + "?limit=2&order=asc").json();
  EXPECT_EQ(At(first, {"data", "1", "content"}), json::Value("b"));
  EXPECT_EQ(At(first, {"has_more"}), json::Value(true));
  const std::string last = At(first, {"last_id"}).as_string();
  const json::Value second = Ask("GET", path + "?order=asc&after=" + last).json();
  EXPECT_EQ(At(second, {"data", "0", "content"}), json::Value("c"));
  EXPECT_EQ(At(Ask("GET", path).json(), {"data", "0", "content"}), json::Value("c"));
  EXPECT_EQ(Ask("GET", path + "?after=nope").status, 404);
  EXPECT_EQ(Ask("GET", path + "?limit=0").status, 400);
  EXPECT_EQ(At(Ask("GET", path + "?order=asc&after=" + At(second, {"last_id"}).as_string()).json(),
               {"first_id"}),
            json::Value());
}

TEST_F(ResponsesTest, ContinuesAConversation) {
  Start();
  const json::Value first = Create(R"("input":"a","instructions":"Be brief.")").json();
  // previous_response_id is equivalent to the whole conversation without the earlier instructions.
  const std::string told = json::Write(json::Value(TextOf(first)));
  Create(R"("input":"b","previous_response_id":")" + IdOf(first) + '"');
  Create(R"("input":[{"role":"user","content":"a"},{"role":"assistant","content":)" + told +
         R"(},{"role":"user","content":"b"}])");
  EXPECT_EQ(PromptOf(1), PromptOf(2));
  // References an item of the answer by its id.
  const std::string item = At(first, {"output", "0", "id"}).as_string();
  Create(R"("input":[{"role":"user","content":"a"},{"type":"item_reference","id":")" + item +
         R"("},{"role":"user","content":"b"}])");
  EXPECT_EQ(PromptOf(3), PromptOf(2));
  EXPECT_EQ(ErrorOf(Create(R"("input":"b","previous_response_id":"resp_x")")),
            "404 invalid_request_error response_id");
  EXPECT_EQ(ErrorOf(Create(R"("input":[{"type":"item_reference","id":"msg_x"}])")),
            "404 invalid_request_error input");
}

TEST_F(ResponsesTest, RunsInTheBackground) {
  Start();
  engine_.Hold(true);
  const json::Value queued = Create(R"("input":"beads","background":true)").json();
  EXPECT_EQ(StatusOf(queued), "queued");
  const std::string path = "/v1/responses/" + IdOf(queued);
  EXPECT_EQ(StatusOf(Ask("GET", path).json()), "queued");
  EXPECT_EQ(ErrorOf(Create(R"("input":"b","previous_response_id":")" + IdOf(queued) + '"')),
            "400 BadRequestError previous_response_id");
  EXPECT_EQ(ErrorOf(Create(R"("input":"b","background":true,"request_id":")" + IdOf(queued) + '"')),
            "400 BadRequestError request_id");
  TestSocket follower(server_->port());  // connects before there are any events
  follower.Send(Head("GET", path + "?stream=true", "", 0));
  engine_.Hold(false);
  const Answer followed = Parse(follower.ReadAll());
  EXPECT_EQ(Types(followed).back(), "incomplete");
  json::Value done;
  ASSERT_TRUE(Eventually([&] {
    done = Ask("GET", path).json();
    return StatusOf(done) == "incomplete";
  }));
  EXPECT_EQ(At(followed.events().back(), {"response"}), done);
  EXPECT_EQ(Ask("GET", path + "?stream=true").body, followed.body);
  EXPECT_EQ(Ask("GET", path + "?stream=true&starting_after=4").events().size(),
            followed.events().size() - 5);
  EXPECT_EQ(ErrorOf(Ask("POST", path + "/cancel")), "400 invalid_request_error response_id");
  // A background stream has the same events as any other stream.
  const Answer stream = Create(R"("input":"beads","background":true,"stream":true)");
  EXPECT_EQ(Types(stream), Types(followed));
}

TEST_F(ResponsesTest, CancelsWhatRunsInTheBackground) {
  Start();
  engine_.Hold(true);
  const std::string path =
      "/v1/responses/" + IdOf(Create(R"("input":"beads","background":true)").json());
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  EXPECT_EQ(StatusOf(Ask("POST", path + "/cancel").json()), "cancelled");
  EXPECT_EQ(engine_.num_unfinished(), 0);
  engine_.Hold(false);
  EXPECT_EQ(StatusOf(Ask("GET", path).json()), "cancelled");
  EXPECT_EQ(Types(Ask("GET", path + "?stream=true")).back(), "cancelled");
  // Removing a running response also ends its generation.
  engine_.Hold(true);
  const std::string other =
      "/v1/responses/" + IdOf(Create(R"("input":"beads","background":true)").json());
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  EXPECT_EQ(Ask("DELETE", other).status, 200);
  EXPECT_EQ(engine_.num_unfinished(), 0);
}

TEST_F(ResponsesTest, WhatFailsInTheBackgroundSaysWhy) {
  engine_.script = [](const Request&) {
    FakeEngine::Script script{{10}};
    script.error = Error{ErrorCode::kInternal, "the device is gone", ""};
    return script;
  };
  Start();
  const std::string path =
      "/v1/responses/" + IdOf(Create(R"("input":"beads","background":true)").json());
  json::Value failed;
  ASSERT_TRUE(Eventually([&] {
    failed = Ask("GET", path).json();
    return StatusOf(failed) == "failed";
  }));
  EXPECT_THAT(At(failed, {"error", "message"}).as_string(), HasSubstr("the device is gone"));
  const Answer stream = Create(R"("input":"beads","stream":true)");
  EXPECT_EQ(Types(stream).back(), "failed");
}

TEST_F(ResponsesTest, ServerThatEndsCancelsTheBackground) {
  Start();
  engine_.Hold(true);
  Create(R"("input":"beads","background":true)");
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  server_->Stop();
  EXPECT_EQ(engine_.num_unfinished(), 0);
}

TEST_F(ResponsesTest, IsThereAfterARestart) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("responses-test-{}", getpid());
  std::filesystem::remove_all(folder);
  ServerConfig config = DefaultConfig();
  config.response_store = folder;
  config.api_keys = {"one", "two"};
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  Start(config);
  const json::Value made = Create(R"("input":"a")", one).json();
  const std::string path = "/v1/responses/" + IdOf(made);
  const std::string items = Ask("GET", path + "/input_items", "", one).body;
  server_.reset();

  Start(config);
  EXPECT_EQ(Ask("GET", path, "", one).json(), made);
  EXPECT_EQ(Ask("GET", path, "", two).status, 404);
  EXPECT_EQ(Ask("GET", path + "/input_items", "", one).body, items);
  EXPECT_EQ(Create(R"("input":"b","previous_response_id":")" + IdOf(made) + '"', one).status, 200);
  EXPECT_EQ(Ask("DELETE", path, "", one).status, 200);
  // A response that runs during a drain finishes and is stored before the server ends.
  engine_.Hold(true);
  const std::string background =
      "/v1/responses/" + IdOf(Create(R"("input":"b","background":true)", one).json());
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  std::thread running([&] { EXPECT_EQ(server_->Run(), 0); });
  server_->BeginDrain();
  engine_.Hold(false);
  running.join();
  server_.reset();

  Start(config);
  EXPECT_EQ(Ask("GET", path, "", one).status, 404);
  const json::Value finished = Ask("GET", background, "", one).json();
  EXPECT_EQ(StatusOf(finished), "incomplete");  // finish reason "length"
  const Answer replay = Ask("GET", background + "?stream=true", "", one);
  EXPECT_EQ(At(replay.events().back(), {"response"}), finished);
  const Result<std::unique_ptr<Server>> second = Server::Create(config);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("is in use by another process"));
  std::filesystem::remove_all(folder);
}

TEST_F(ResponsesTest, AnotherKeyFindsNothing) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"one", "two"};
  Start(config);
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  const std::string id = IdOf(Create(R"("input":"a")", one).json());
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id, "", one).status, 200);
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id, "", two).status, 404);
  EXPECT_EQ(Ask("DELETE", "/v1/responses/" + id, "", two).status, 404);
  EXPECT_EQ(Create(R"("input":"a","previous_response_id":")" + id + '"', two).status, 404);
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id).status, 401);
}

TEST_F(ResponsesTest, AnIdOfAnotherKeyIsRefused) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"one", "two"};
  Start(config);
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  const json::Value made = Create(R"("input":"a")", one).json();
  const std::string same = R"("input":"b","request_id":")" + IdOf(made) + '"';
  for (const std::string more :
       {"", R"(,"background":true)", R"(,"stream":true)", R"(,"store":false)"}) {
    const Answer refused = Create(same + more, two);
    EXPECT_EQ(ErrorOf(refused), "400 BadRequestError request_id") << more;
    EXPECT_THAT(refused.body, HasSubstr("omit it")) << more;
  }
  EXPECT_EQ(Ask("GET", "/v1/responses/" + IdOf(made), "", one).json(), made);
  EXPECT_EQ(Create(same, one).status, 200);  // replaces the same owner's response
  EXPECT_NE(Ask("GET", "/v1/responses/" + IdOf(made), "", one).json(), made);
  // The id of a running response is taken although the response is not stored yet.
  engine_.Hold(true);
  const std::string body = R"({"input":"a","request_id":"mine"})";
  TestSocket running(server_->port());
  running.Send(
      Head("POST", "/v1/responses", one + "Content-Type: application/json\r\n", body.size()) +
      body);
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  EXPECT_EQ(ErrorOf(Create(R"("input":"b","request_id":"mine")", two)),
            "400 BadRequestError request_id");
  engine_.Hold(false);
  EXPECT_THAT(running.ReadAll(), HasSubstr("200 OK"));
}

TEST_F(ResponsesTest, WhatIsRefusedTakesNobodysPlace) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"one", "two"};
  config.response_store_bytes = 60000;
  Start(config);
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  const auto large = [](size_t bytes) {
    return R"("max_output_tokens":1,"background":true,"truncation":"auto","input":[{"role":"user",)"
           R"("content":"a"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text",)"
           R"("text":")" +
           std::string(bytes, 'a') + R"("}]}])";
  };
  const std::string kept = "/v1/responses/" + IdOf(Create(R"("input":"a")", one).json());
  const Answer refused = Create(large(70000), two);
  EXPECT_EQ(ErrorOf(refused), "413 invalid_request_error background") << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("more than the 60000 of --response-store-bytes"));
  EXPECT_THAT(refused.body, Not(HasSubstr("try again")));
  EXPECT_EQ(Ask("GET", kept, "", one).status, 200);
  EXPECT_TRUE(Eventually([&] { return engine_.num_unfinished() == 0; }));
  // Many responses of another key replace only responses of that key.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Create(R"("input":"a")", two).status, 200);
  EXPECT_EQ(Ask("GET", kept, "", one).status, 200);
}

TEST_F(ResponsesTest, UnderTheNameVllmNothingIsStoredUnlessAsked) {
  ServerConfig config = DefaultConfig();
  config.dialect = ApiDialect::kVllm;
  config.enable_response_store = false;
  Start(config);
  const std::string path = "/v1/responses/" + IdOf(Create(R"("input":"a","store":true)").json());
  EXPECT_EQ(ErrorOf(Ask("GET", path)), "404 invalid_request_error response_id");
  EXPECT_EQ(ErrorOf(Create(R"("input":"a","background":true)")),
            "400 invalid_request_error background");
  EXPECT_EQ(Ask("DELETE", path).body, R"({"detail":"Method Not Allowed"})");
  EXPECT_EQ(Ask("GET", path + "/input_items").body, R"({"detail":"Not Found"})");
  // As in vLLM, tools that only OpenAI's servers run are accepted but never called.
  EXPECT_EQ(Create(R"("input":"a","tools":[{"type":"code_interpreter","container":"x"}])").status,
            200);
}

// The fields and tools of a turn of Codex, whose history has items of all kinds.
TEST_F(ResponsesTest, AnswersWhatCodexSends) {
  Start();
  const Answer answer = Create(
      R"("instructions":"You are an agent.","input":[{"type":"message","role":"developer","content":[)"
      R"({"type":"input_text","text":"Rules."}]},{"type":"message","role":"user","content":[)"
      R"({"type":"input_text","text":"List the files."}]},)"
      R"({"type":"reasoning","summary":[],"content":null,"encrypted_content":null},)"
      R"({"type":"function_call","name":"search","namespace":"mcp__docs","arguments":"{}",)"
      R"("call_id":"c1"},{"type":"function_call_output","call_id":"c1","output":"none"},)"
      R"({"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}},)"
      R"({"type":"custom_tool_call","status":"completed","call_id":"c2","name":"apply_patch",)"
      R"("input":"*** Begin Patch"},)"
      R"({"type":"custom_tool_call_output","call_id":"c2","output":"Done!"}],)"
      R"("tools":[{"type":"function","name":"shell","description":"d","strict":false,)"
      R"("parameters":{"type":"object","properties":{}}},{"type":"custom","name":"apply_patch",)"
      R"("format":{"type":"grammar","syntax":"lark","definition":"start: \"x\""}},)"
      R"({"type":"namespace","name":"mcp__docs","description":"d","tools":[{"type":"function",)"
      R"("name":"search","description":"d","strict":false,"parameters":{"type":"object"}}]},)"
      R"({"type":"web_search","external_web_access":false}],"tool_choice":"auto",)"
      R"("parallel_tool_calls":false,"reasoning":{"effort":"medium","summary":"auto"},)"
      R"("store":false,"stream":true,"include":["reasoning.encrypted_content"],)"
      R"("prompt_cache_key":"k","text":{"verbosity":"low"},"client_metadata":{"a":"b"})",
      "originator: codex_cli_rs\r\nsession_id: s\r\nversion: 0.145.0\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(Types(answer),
              ElementsAre("created", "in_progress", "output_item.added", "content_part.added",
                          "output_text.delta", "output_text.done", "content_part.done",
                          "output_item.done", "incomplete"));
}

// Only the item that was cut off is incomplete.
TEST_F(ResponsesTest, ACutAnswerIsIncompleteEverywhere) {
  ServerConfig config = DefaultConfig();
  config.reasoning_parser = "qwen3";
  Start(config);
  const auto tokenizer = Tokenizer::Load(kServerTestModel);
  ASSERT_TRUE(tokenizer);
  const std::vector<int32_t> tokens = (*tokenizer)->Encode("Hm.</think>Well", false);
  engine_.script = [&](const Request&) { return FakeEngine::Script{tokens}; };
  const json::Value whole = Create(R"("input":"beads")").json();
  const json::Value last =
      At(Create(R"("input":"beads","stream":true)").events().back(), {"response"});
  const Answer replay = Ask("GET", "/v1/responses/" + IdOf(last) + "?stream=true");
  EXPECT_EQ(Types(replay).back(), "incomplete");
  for (const json::Value& response : {whole, last, At(replay.events().back(), {"response"})}) {
    EXPECT_EQ(StatusOf(response), "incomplete");
    EXPECT_EQ(At(response, {"incomplete_details", "reason"}), json::Value("max_output_tokens"));
    EXPECT_EQ(StatusOf(At(response, {"output", "0"})), "completed");
    EXPECT_EQ(StatusOf(At(response, {"output", "1"})), "incomplete");
  }
  for (const json::Value& event : replay.events()) {
    if (At(event, {"type"}) == json::Value("response.output_item.done")) {
      EXPECT_EQ(*event.Find("item"),
                At(last, {"output", std::to_string(event.Find("output_index")->as_integer())}));
    }
  }
}

TEST_F(ResponsesTest, LogprobsAreThoseOfTheText) {
  ServerConfig config = DefaultConfig();
  config.reasoning_parser = "qwen3";
  config.enable_auto_tool_choice = true;
  config.tool_call_parser = "hermes";
  Start(config);
  const auto tokenizer = Tokenizer::Load(kServerTestModel);
  ASSERT_TRUE(tokenizer);
  const std::vector<int32_t> tokens =
      (*tokenizer)
          ->Encode(R"(Hm, so.</think>Well, caf)"
                   "\u00E9"
                   R"(.<tool_call>{"name": "f", "arguments": {}}</tool_call>)",
                   false);
  engine_.script = [&](const Request&) { return FakeEngine::Script{tokens}; };
  const std::string fields =
      R"("input":"beads","include":["message.output_text.logprobs"],)"
      R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"}}])";
  const std::vector<json::Value> events = Create(fields + R"(,"stream":true)").events();
  std::string streamed;
  for (const json::Value& event : events) {
    const json::Value& list = At(event, {"logprobs"});
    if (At(event, {"type"}) != json::Value("response.output_text.delta")) continue;
    for (const json::Value& token : list.as_array()) streamed += token.Find("token")->as_string();
  }
  for (const json::Value& response : {Create(fields).json(), At(events.back(), {"response"})}) {
    const json::Value& part = At(response, {"output", "1", "content", "0"});
    std::string told;
    for (const json::Value& token : At(part, {"logprobs"}).as_array())
      told += token.Find("token")->as_string();
    EXPECT_EQ(told, At(part, {"text"}).as_string());
    EXPECT_EQ(streamed, told);
  }
}

TEST_F(ResponsesTest, RefusesByName) {
  Start();
  const struct {
    const char* fields;
    const char* error;
  } cases[] = {
      {R"("input":5)", "400 Bad Request body.input"},
      {R"("store":true)", "400 Bad Request body.input"},
      {R"("input":[{"type":"nope"}])", "400 Bad Request body.input"},
      {R"("input":[{"content":"x"}])", "400 Bad Request body.input"},
      {R"("input":[{"role":"user","content":5}])", "400 Bad Request body.input"},
      {R"("input":[{"role":"nobody","content":"x"}])", "400 Bad Request body.input"},
      {R"("input":[{"type":"function_call","call_id":"c"}])", "400 Bad Request body.input"},
      {R"("input":[])", "400 BadRequestError null"},
      {R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])",
       "400 BadRequestError input[0].content[0].image_url"},
      {R"("input":"a","truncation":"x")", "400 Bad Request body.truncation"},
      {R"("input":"a","include":["x"])", "400 Bad Request body.include.0"},
      {R"("input":"a","text":{"format":{"type":"x"}})",
       "400 Bad Request body.text.format.ResponseFormatText.type"},
      {R"("input":"a","reasoning":{"effort":"x"})", "400 Bad Request body.reasoning.effort"},
      {R"("input":"a","metadata":{"k":{}})", "400 Bad Request body.metadata.k"},
      {R"("input":"a","tools":[{"type":"function"}])",
       "400 Bad Request body.tools.0.FunctionTool.name"},
      {R"("input":"a","tools":[{"type":"mcp","server_label":"x"}])", "400 BadRequestError tools.0"},
      {R"("input":"a","tools":[{"type":"namespace","name":"n"}])",
       "400 Bad Request body.tools.0.NamespaceTool.tools"},
      {R"("input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"}]}])",
       "400 Bad Request body.tools.0.NamespaceTool.tools.0.type"},
      {R"("input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}])",
       "400 Bad Request body.tools.0.NamespaceTool.tools.0.name"},
      {R"("input":"a","tools":[{"type":"namespace","name":"n","tools":[)"
       R"({"type":"function","name":"f"}]}],"tool_choice":{"type":"function","name":"f"})",
       "400 BadRequestError tool_choice"},
      {R"("input":"a","tool_choice":"x")", "400 Bad Request body.tool_choice"},
      {R"("input":"a","tools":[{"type":"function","name":"f"}],)"
       R"("tool_choice":{"type":"allowed_tools","mode":"auto","tools":[)"
       R"({"type":"function","name":"g"}]})",
       "400 BadRequestError tool_choice.tools.0"},
      {R"("input":"a","tool_choice":"required")", "400 BadRequestError tool_choice"},
      {R"("input":"a","tools":[{"type":"function","name":"f"}],)"
       R"("tool_choice":{"type":"function","name":"g"})",
       "400 BadRequestError tool_choice"},
      {R"("input":"a","background":true,"store":false)", "400 BadRequestError background"},
      {R"("input":"a","prompt":{"id":"p"})", "400 BadRequestError prompt"},
      {R"("input":"a","max_output_tokens":99999)", "400 BadRequestError max_output_tokens"},
      {R"("input":"a","previous_response":{"id":"x"})", "400 BadRequestError previous_response"},
      {R"("input":[{"type":"reasoning","encrypted_content":"x"}])", "400 BadRequestError input"},
      {R"("input":"a","text":{"format":{"type":"json_object"}},)"
       R"("structured_outputs":{"regex":"a"})",
       "400 BadRequestError null"},
  };
  for (const auto& [fields, error] : cases) EXPECT_EQ(ErrorOf(Create(fields)), error) << fields;
  EXPECT_THAT(Create(R"("input":[{"role":"user","content":5}])").body,
              HasSubstr("body.input.0.content: expected a string or a list"));
  // Codex's tools that are not functions are accepted.
  EXPECT_EQ(Create(R"("input":"a","tools":[{"type":"local_shell"},{"type":"web_search"},)"
                   R"({"type":"custom","name":"apply_patch","format":{"type":"grammar"}}])")
                .status,
            200);
}

}  // namespace
}  // namespace sluice
