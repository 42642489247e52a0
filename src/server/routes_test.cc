// Routes other than completions and chats, and the differences between dialects.
#include <chrono>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/api/context/route.h"
#include "server/server_testing.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Answer = ServerAnswer;

class RoutesTest : public ServerTest {
 protected:
  static ServerConfig In(ApiDialect dialect) {
    ServerConfig config = DefaultConfig();
    config.dialect = dialect;
    return config;
  }
  static ServerConfig Dev() {
    ServerConfig config = DefaultConfig();
    config.dev_mode = true;
    config.enable_server_load_tracking = true;
    return config;
  }
  static ServerConfig WithEveryRouteAndAKey(ApiDialect dialect) {
    ServerConfig config = In(dialect);
    config.dev_mode = true;
    config.enable_tokenizer_info_endpoint = true;
    config.api_keys = {"sk-bead-0001"};
    return config;
  }
  // Waits until `count` requests are pending, including held ones.
  bool LoadBecomes(int count) {
    return Eventually([&] {
      return Ask("GET", "/load").body == R"({"server_load":)" + std::to_string(count) + "}";
    });
  }
  std::string Detail(const std::string& method, const std::string& path) {
    const Answer answer = Ask(method, path, method == "POST" ? "{}" : "");
    EXPECT_EQ(answer.status, 404) << path;
    const json::Value body = answer.json();
    EXPECT_EQ(Keys(body), "detail ") << path;
    return At(body, {"detail"}).as_string();
  }
  // A request whose answer another thread reads.
  struct Waiting {
    std::thread thread;
    Answer answer;
  };
  void AskLater(Waiting& waiting, const std::string& fields) {
    waiting.thread = std::thread([this, &waiting, fields] { waiting.answer = Complete(fields); });
  }
};

TEST_F(RoutesTest, WhatIsNotServedIsNamed) {
  Start(In(ApiDialect::kVllm));
  EXPECT_THAT(Detail("POST", "/v1/audio/transcriptions"), HasSubstr("speech"));
  EXPECT_THAT(Detail("POST", "/v1/load_lora_adapter"), HasSubstr("LoRA"));
  EXPECT_THAT(Detail("POST", "/sleep"), HasSubstr("VLLM_SERVER_DEV_MODE=1"));
  EXPECT_THAT(Detail("GET", "/tokenizer_info"), HasSubstr("--enable-tokenizer-info-endpoint"));
  EXPECT_EQ(Detail("GET", "/nope"), "Not Found");
  // vLLM lacks this route, so it does not exist in vLLM's dialect.
  EXPECT_EQ(Detail("GET", "/v1/models/abacus"), "Not Found");
}

TEST_F(RoutesTest, RefusedRoutesHaveOneAnswer) {
  Start();
  const auto error = [&](const std::string& path, int status) {
    const Answer answer = Ask("POST", path, "{}");
    EXPECT_EQ(answer.status, status) << path;
    return answer.body;
  };
  EXPECT_THAT(error("/generative_scoring", 400), HasSubstr("use /v1/completions with echo"));
  EXPECT_THAT(error("/scale_elastic_ep", 400), HasSubstr("cannot be scaled"));
  EXPECT_THAT(error("/v1/completions/render", 403), HasSubstr("PermissionDeniedError"));
  EXPECT_THAT(error("/inference/v1/generate", 403),
              HasSubstr("served only with --enable-scale-out"));
}

TEST_F(RoutesTest, AKeyIsNeededForAllThatIsNotOpen) {
  const std::set<std::string_view> open = {"/health",
                                           "/ready",
                                           "/ping",
                                           "/version",
                                           "/load",
                                           "/docs",
                                           "/prometheus/metrics",
                                           "/metrics",
                                           "/redoc",
                                           "/openapi.json",
                                           "/",
                                           "/web/{name}",
                                           "/docs/{name}"};
  for (const ApiDialect dialect : {ApiDialect::kSluice, ApiDialect::kVllm, ApiDialect::kTrtllm}) {
    const ServerConfig config = WithEveryRouteAndAKey(dialect);
    Start(config);
    size_t num_guarded = 0;
    for (const Route* route : OpenRoutes(config)) {
      for (const std::string_view method : route->methods) {
        if (method == "OPTIONS") continue;
        const Answer answer =
            Ask(std::string(method), std::string(route->path), method == "POST" ? "{}" : "");
        EXPECT_EQ(answer.status == 401, !open.contains(route->path)) << method << route->path;
        num_guarded += answer.status == 401 ? 1 : 0;
      }
    }
    EXPECT_GT(num_guarded, 20u);
    EXPECT_EQ(Ask("GET", "/nope").status, 404);
    const std::string key = "Authorization: Bearer sk-bead-0001\r\n";
    EXPECT_EQ(Ask("POST", "/tokenize", R"({"prompt":"a"})", key).status, 200);
    EXPECT_EQ(Ask("GET", "/server_info", "", key).status, 200);
    EXPECT_EQ(Ask("GET", "/server_info", "", "x-api-key: sk-bead-0001\r\n").status, 200);
    EXPECT_EQ(Ask("GET", "/server_info", "", "x-api-key: sk-bead-000\r\n").status, 401);
    EXPECT_EQ(
        Ask("GET", "/server_info", "", "Authorization: Bearer x\r\nx-api-key: sk-bead-0001\r\n")
            .status,
        200);
  }
}

TEST_F(RoutesTest, AKeyIsNeededForAllButHealthWhereAllIsProtected) {
  ServerConfig config = WithEveryRouteAndAKey(ApiDialect::kTrtllm);
  config.protect_all = true;
  Start(config);
  const std::string key = "Authorization: Bearer sk-bead-0001\r\n";
  for (const char* path : {"/ping", "/version", "/load", "/metrics", "/metrics/", "/docs",
                           "/openapi.json", "/prometheus/metrics", "/nope", "/version/"}) {
    EXPECT_EQ(Ask("GET", path).status, 401) << path;
    EXPECT_NE(Ask("GET", path, "", key).status, 401) << path;
  }
  EXPECT_EQ(Ask("OPTIONS", "/metrics").status, 401);
  EXPECT_EQ(Ask("OPTIONS", "/version").status, 405);
  EXPECT_EQ(Ask("OPTIONS", "/metrics", "",
                "Origin: http://a.example\r\nAccess-Control-Request-Method: GET\r\n")
                .status,
            400);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  EXPECT_EQ(Ask("GET", "/ready").status, 200);
}

TEST_F(RoutesTest, OpenApiTellsOfWhatIsThere) {
  Start();
  const json::Value document = Ask("GET", "/openapi.json").json();
  EXPECT_EQ(At(document, {"openapi"}), json::Value("3.1.0"));
  const json::Value& paths = At(document, {"paths"});
  ASSERT_TRUE(paths.is_object());
  EXPECT_NE(paths.Find("/v1/completions"), nullptr);
  EXPECT_EQ(paths.Find("/sleep"), nullptr);
  EXPECT_EQ(paths.Find("/generative_scoring"), nullptr);
  const json::Value& schemas = At(document, {"components", "schemas"});
  // Every $ref in the document has a target.
  const std::string text = json::Write(document);
  static constexpr std::string_view kPrefix = "#/components/schemas/";
  size_t count = 0;
  for (size_t at = text.find(kPrefix); at != std::string::npos; at = text.find(kPrefix, at + 1)) {
    const size_t begin = at + kPrefix.size();
    const std::string name = text.substr(begin, text.find('"', begin) - begin);
    EXPECT_NE(schemas.Find(name), nullptr) << name;
    ++count;
  }
  EXPECT_GT(count, 20u);
  EXPECT_THAT(Ask("GET", "/docs").body, HasSubstr("<code>/v1/chat/completions</code>"));
  EXPECT_EQ(Ask("HEAD", "/docs").status, 200);
}

TEST_F(RoutesTest, DocsCanBeClosed) {
  ServerConfig config = DefaultConfig();
  config.enable_docs = false;
  Start(config);
  EXPECT_THAT(Detail("GET", "/openapi.json"), HasSubstr("--disable-fastapi-docs"));
}

TEST_F(RoutesTest, LoadReport) {
  Start();
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  const auto head = [&](const std::string& format) {
    return Ask("POST", "/v1/completions", body, "endpoint-load-metrics-format: " + format + "\r\n")
        .head;
  };
  EXPECT_THAT(head("json"), HasSubstr("endpoint-load-metrics: JSON {\"named_metrics\": "
                                      "{\"num_requests_waiting\": 0.0, "));
  EXPECT_THAT(head("TEXT"),
              HasSubstr("endpoint-load-metrics: TEXT named_metrics.num_requests_waiting=0.0, "));
  EXPECT_THAT(head("bin"), Not(HasSubstr("endpoint-load-metrics")));
}

TEST_F(RoutesTest, BatchChat) {
  Start();
  const auto batch = [&](const std::string& messages, const std::string& more = "") {
    return Ask("POST", "/v1/chat/completions/batch",
               R"({"max_tokens":2,"messages":)" + messages + more + "}");
  };
  const Answer answer = batch(
      R"([[{"role":"user","content":"a"}],[{"role":"user","content":"b"}]])", R"(,"stream":true)");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(At(answer.json(), {"choices"}).as_array().size(), 2u);
  EXPECT_EQ(At(answer.json(), {"usage", "completion_tokens"}), json::Value(4));
  EXPECT_EQ(At(answer.json(), {"prompt_token_ids"}), json::Value());
  EXPECT_THAT(batch("[]").body, HasSubstr(R"("param":"body.messages")"));
  EXPECT_THAT(batch(R"([{"role":"user","content":"a"}])").body,
              HasSubstr(R"("param":"body.messages.0")"));
  EXPECT_THAT(batch(R"([[{"role":"user","content":"a"}]])", R"(,"n":2)").body,
              HasSubstr(R"("param":"n")"));
}

TEST_F(RoutesTest, Messages) {
  engine_.script = [](const Request&) {
    return FakeEngine::Script{{458, 274, 393, 510}, FinishReason::kStop};
  };
  Start();
  const auto ask = [&](const std::string& fields, const std::string& path = "/v1/messages") {
    return Ask("POST", path,
               R"({"model":"abacus","messages":[{"role":"user","content":)"
               R"("The abacus counts the beads"}])" +
                   fields + "}",
               "anthropic-version: 2023-06-01\r\nanthropic-beta: a,b\r\n");
  };
  const json::Value body = ask(R"(,"max_tokens":8)", "/v1/messages?beta=true").json();
  EXPECT_EQ(Keys(body), "id type role content model stop_reason usage ");
  EXPECT_EQ(json::Write(At(body, {"content"})), R"([{"type":"text","text":"'tifoli"}])");
  EXPECT_EQ(At(body, {"stop_reason"}), json::Value("end_turn"));
  EXPECT_EQ(json::Write(At(body, {"usage"})), R"({"input_tokens":43,"output_tokens":4})");
  const auto events = ask(R"(,"max_tokens":8,"stream":true)").events();
  ASSERT_GE(events.size(), 6u);
  EXPECT_EQ(At(events[0], {"message", "usage", "input_tokens"}), json::Value(43));
  EXPECT_EQ(At(events.back(), {"type"}), json::Value("message_stop"));
  const Answer count = ask("", "/v1/messages/count_tokens");
  EXPECT_EQ(count.body, R"({"input_tokens":43,"context_management":{"original_input_tokens":43}})");

  EXPECT_THAT(ask("").body, StartsWith(R"({"type":"error","error":{"type":"invalid_request_error",)"
                                       R"("message":"body.max_tokens: )"));
  const Answer hot = ask(R"(,"max_tokens":8,"temperature":3)");
  EXPECT_EQ(hot.status, 400);
  EXPECT_THAT(hot.body, StartsWith(R"({"type":"error","error":{"type":"invalid_request_error",)"));
  const Answer unknown =
      Ask("POST", "/v1/messages/count_tokens", R"({"model":"nope","messages":[]})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, StartsWith(R"({"type":"error","error":{"type":"not_found_error",)"));
  for (const auto& [schema, reason] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"type":"strng"})", "`type` must be"},
           {R"({"type":"string","pattern":"(?=a)b"})", "look-around"}}) {
    const std::string format = std::string(R"("format":{"type":"json_schema","schema":)") + schema;
    EXPECT_THAT(ask(R"(,"max_tokens":8,"output_config":{)" + format + "}}").body,
                ::testing::AllOf(HasSubstr(R"("message":"output_config.format.schema: )"),
                                 HasSubstr(reason)));
    EXPECT_THAT(ask(R"(,"max_tokens":8,"output_)" + format.substr(1) + "}").body,
                HasSubstr(R"("message":"output_format.schema: )"));
  }
  const Answer cold = Ask("GET", "/v1/messages");
  EXPECT_EQ(cold.status, 405);
}

// Errors that occur before the route is called also have the shape of Anthropic's API.
TEST_F(RoutesTest, MessagesAreRefusedInTheirShape) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"one"};
  config.max_body_bytes = 100000;
  config.limit_requests_per_minute = 1;
  config.max_pending_requests = 1;
  Start(config, /*attach=*/false);
  const std::string key = "x-api-key: one\r\n", path = "/v1/messages";
  const auto error_of = [](const Answer& answer) {
    const json::Value body = answer.json();
    EXPECT_EQ(At(body, {"type"}), json::Value("error")) << answer.body;
    return fmt::format("{} {}", answer.status, At(body, {"error", "type"}).as_string());
  };
  EXPECT_EQ(error_of(Ask("POST", path, "{}")), "401 authentication_error");
  EXPECT_EQ(error_of(Ask("GET", path, "", key)), "405 invalid_request_error");
  EXPECT_EQ(error_of(Ask("POST", path + "/batches", "{}", key)), "404 not_found_error");
  EXPECT_EQ(error_of(Ask("POST", path, std::string(100001, 'x'), key)), "413 request_too_large");
  EXPECT_EQ(error_of(Ask("POST", path, "{}", key)), "503 overloaded_error");  // loading
  Attach();
  const std::string body =
      R"({"model":"abacus","max_tokens":2,"messages":[{"role":"user","content":"a"}]})";
  EXPECT_EQ(Ask("POST", path, body, key).status, 200);
  EXPECT_EQ(error_of(Ask("POST", path + "/count_tokens?beta=true", body, key)),
            "429 rate_limit_error");
  // Errors of other paths keep the shape of the OpenAI API.
  EXPECT_EQ(Ask("POST", "/v1/messagesx", "{}").body, R"({"error":"Unauthorized"})");
  EXPECT_EQ(Ask("POST", "/v1/messagesx", "{}", key).body, R"({"detail":"Not Found"})");
}

TEST_F(RoutesTest, MessagesUnderTheNameVllmAreRefusedByItsFramework) {
  ServerConfig config = DefaultConfig();
  config.dialect = ApiDialect::kVllm;
  config.api_keys = {"one"};
  Start(config);
  EXPECT_EQ(Ask("POST", "/v1/messages", "{}").body, R"({"error":"Unauthorized"})");
  const std::string key = "x-api-key: one\r\n";
  EXPECT_EQ(Ask("GET", "/v1/messages", "", key).body, R"({"detail":"Method Not Allowed"})");
  // In vLLM's dialect, an error about a field has OpenAI's shape.
  const Answer field = Ask("POST", "/v1/messages", R"({"model":"abacus","messages":[]})", key);
  EXPECT_EQ(At(field.json(), {"error", "param"}), json::Value("body.max_tokens")) << field.body;
}

TEST_F(RoutesTest, PauseHoldsRequestsBackAndResumeLetsThemGo) {
  Start(Dev());
  EXPECT_EQ(Ask("POST", "/pause?mode=wait").body, R"({"status":"paused"})");
  EXPECT_EQ(Ask("GET", "/is_paused").body, R"({"is_paused":true})");
  Waiting waiting;
  AskLater(waiting, "\"max_tokens\":2");
  EXPECT_TRUE(LoadBecomes(1));
  // Time in which a request that is not held would reach the engine.
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(engine_.requests().size(), 0u);
  EXPECT_EQ(Ask("POST", "/resume").body, R"({"status":"resumed"})");
  waiting.thread.join();
  EXPECT_EQ(waiting.answer.status, 200);
  EXPECT_EQ(Ask("GET", "/is_paused").body, R"({"is_paused":false})");
  EXPECT_EQ(Ask("POST", "/pause?mode=keep").status, 400) << "this engine cannot be frozen";
  EXPECT_EQ(Ask("GET", "/is_paused").body, R"({"is_paused":false})");
  EXPECT_THAT(Ask("POST", "/pause?mode=bogus").body, HasSubstr(R"("param":"query.mode")"));
}

TEST_F(RoutesTest, ADrainAnswersWhatPauseHoldsBack) {
  Start(Dev());
  std::thread running([&] { server_->Run(); });
  Ask("POST", "/pause");
  Waiting waiting;
  AskLater(waiting, "\"max_tokens\":2");
  EXPECT_TRUE(LoadBecomes(1));
  std::this_thread::sleep_for(50ms);  // time for the request to be held
  server_->BeginDrain();
  waiting.thread.join();
  running.join();
  EXPECT_EQ(waiting.answer.status, 503);
  EXPECT_THAT(waiting.answer.head, HasSubstr("retry-after: 1\r\n"));
  EXPECT_THAT(waiting.answer.body, HasSubstr(R"("type":"ServiceUnavailableError")"));
  EXPECT_EQ(engine_.requests().size(), 0u);
}

TEST_F(RoutesTest, HeldRequestsOfClientsThatLeaveAreForgotten) {
  Start(Dev());
  Ask("POST", "/pause");
  const std::string body = R"({"prompt":"a","max_tokens":2})";
  TestSocket gone(server_->port());
  gone.Send(Head("POST", "/v1/completions", "Content-Type: application/json\r\n", body.size()) +
            body);
  EXPECT_TRUE(LoadBecomes(1));
  std::this_thread::sleep_for(50ms);  // time for the request to be held; the test passes either way
  gone.Close();
  EXPECT_TRUE(LoadBecomes(0));
  Ask("POST", "/resume");
  EXPECT_EQ(Ask("POST", "/v1/completions", body).status, 200);
  EXPECT_EQ(engine_.requests().size(), 1u);
  EXPECT_EQ(Ask("POST", "/pause?mode=wait").status, 200) << "nothing is thought to run";
}

TEST_F(RoutesTest, SeveralPromptsWithSeveralAnswersEach) {
  engine_.script = [](const Request& request) {
    return FakeEngine::Script{{request.prompt[0], request.prompt[0]}};
  };
  Start();
  const std::string body =
      R"({"prompt":[[65],[66],[67]],"n":2,"max_tokens":2,"temperature":1,"return_token_ids":true)";
  const json::Value whole = Ask("POST", "/v1/completions", body + "}").json();
  const json::Value::Array& choices = At(whole, {"choices"}).as_array();
  ASSERT_EQ(choices.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(At(choices[static_cast<size_t>(i)], {"index"}), json::Value(i));
    EXPECT_EQ(At(choices[static_cast<size_t>(i)], {"token_ids", "0"}), json::Value(65 + i / 2));
  }
  EXPECT_EQ(At(whole, {"usage", "prompt_tokens"}), json::Value(3));
  EXPECT_EQ(At(whole, {"usage", "completion_tokens"}), json::Value(12));
  const std::vector<json::Value> events =
      Ask("POST", "/v1/completions",
          body + R"(,"stream":true,"stream_options":{"include_usage":true}})")
          .events();
  ASSERT_EQ(events.size(), 13u);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(ChunkText(events, i), At(choices[static_cast<size_t>(i)], {"text"}).as_string());
  EXPECT_EQ(At(events.back(), {"usage", "completion_tokens"}), json::Value(12));
}

TEST_F(RoutesTest, AbortEndsWhatRunsAndWhatIsHeld) {
  engine_.script = [](const Request&) { return FakeEngine::Script{std::vector<int32_t>(400, 82)}; };
  engine_.step_time = 50ms;
  Start(Dev());
  for (const bool held : {false, true}) {
    if (held) Ask("POST", "/pause");
    Waiting waiting;
    AskLater(waiting, "\"max_tokens\":400,\"stream\":true,\"request_id\":\"x1\"");
    ASSERT_TRUE(held ? LoadBecomes(1) : Eventually([&] { return engine_.num_steps() > 3; }));
    EXPECT_EQ(Ask("POST", "/abort_requests", R"({"request_ids":["other"]})").body,
              R"({"status":"aborted","aborted":0})");
    // A request counts as held only after its prompt is read.
    EXPECT_TRUE(Eventually([&] {
      return Ask("POST", "/abort_requests", R"({"request_ids":["x1"]})").body ==
             R"({"status":"aborted","aborted":1})";
    }));
    waiting.thread.join();
    EXPECT_EQ(waiting.answer.status, 200);
    EXPECT_EQ(At(waiting.answer.events().back(), {"choices", "0", "finish_reason"}),
              json::Value("abort"));
    EXPECT_TRUE(waiting.answer.body.ends_with("data: [DONE]\n\n"));
    EXPECT_TRUE(Eventually([&] { return engine_.num_unfinished() == 0; }));
  }
}

TEST_F(RoutesTest, QuietStreamsAreKeptAlive) {
  ServerConfig config = Dev();
  config.sse_keep_alive_seconds = 0.05;
  Start(config);
  Ask("POST", "/pause");
  const std::string body = R"({"prompt":"a","max_tokens":2,"stream":true})";
  TestSocket socket(server_->port());
  socket.Send(Head("POST", "/v1/completions", "Content-Type: application/json\r\n", body.size()) +
              body);
  std::string all;
  static constexpr std::string_view kLine = ": keep-alive\n\n";
  for (size_t at = 0, lines = 0; lines < 2;) {
    const size_t found = all.find(kLine, at);
    if (found != std::string::npos) {
      at = found + kLine.size();
      ++lines;
      continue;
    }
    const std::string piece = socket.Read();
    ASSERT_FALSE(piece.empty()) << all;
    all += piece;
  }
  Ask("POST", "/resume");
  const Answer answer = Parse(all + socket.ReadAll());
  EXPECT_THAT(answer.body, ::testing::StartsWith(": keep-alive\n\n: keep-alive\n\n"));
  EXPECT_EQ(answer.events().size(), 2u);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(RoutesTest, SleepAndOtherDevelopmentRoutes) {
  Start(Dev());
  for (const char* path : {"/sleep", "/sleep?level=1", "/sleep?level=2"}) {
    const Answer refused = Ask("POST", path);
    EXPECT_EQ(refused.status, 501);
    EXPECT_THAT(refused.body, HasSubstr("--enable-sleep-mode"));
    EXPECT_EQ(Ask("GET", "/is_sleeping").body, R"({"is_sleeping":false})");
  }
  EXPECT_EQ(Ask("POST", "/sleep?level=0").body, R"({"status":"sleeping","level":0})");
  EXPECT_EQ(Ask("GET", "/is_sleeping").body, R"({"is_sleeping":true})");
  EXPECT_THAT(Ask("GET", "/metrics").body, HasSubstr("sleep_state=\"awake\"} 0.0"));
  EXPECT_EQ(Ask("POST", "/wake_up").body, R"({"status":"awake","tags":null})");
  EXPECT_EQ(Ask("GET", "/is_sleeping").body, R"({"is_sleeping":false})");
  EXPECT_EQ(Ask("POST", "/reset_prefix_cache").body, R"({"success":true})");
  EXPECT_EQ(Ask("POST", "/reset_mm_cache").body, "");
  EXPECT_EQ(Ask("GET", "/get_world_size").body, R"({"world_size":1})");
  EXPECT_EQ(Ask("POST", "/collective_rpc").status, 400);
  EXPECT_EQ(Keys(Ask("GET", "/server_info").json()), "vllm_config vllm_env system_env ");
  EXPECT_TRUE(
      At(Ask("GET", "/server_info?config_format=json").json(), {"vllm_config"}).is_object());
  EXPECT_THAT(Ask("GET", "/server_info?config_format=bogus").body,
              HasSubstr(R"("param":"query.config_format")"));
}

TEST_F(RoutesTest, TrtllmShapes) {
  Start(In(ApiDialect::kTrtllm));
  const Answer answer = Complete("\"max_tokens\":3");
  EXPECT_EQ(Keys(answer.json()), "id object created model choices usage prompt_token_ids ");
  EXPECT_EQ(Keys(At(answer.json(), {"choices", "0"})),
            "index text token_ids logprobs context_logits finish_reason stop_reason "
            "disaggregated_params ");
  EXPECT_EQ(Keys(At(answer.json(), {"usage"})), "prompt_tokens total_tokens completion_tokens ");
  const Answer ids = Complete("\"max_tokens\":3,\"detokenize\":false");
  EXPECT_EQ(At(ids.json(), {"choices", "0", "text"}), json::Value(""));
  EXPECT_EQ(json::Write(At(ids.json(), {"choices", "0", "token_ids"})), "[10,11,12]");
  const std::vector<json::Value> events = Complete("\"max_tokens\":3,\"stream\":true").events();
  EXPECT_EQ(Keys(events[0]), "id object created model choices usage ");
  EXPECT_EQ(Keys(At(events[0], {"choices", "0"})),
            "index text token_ids logprobs finish_reason stop_reason ");
  EXPECT_EQ(Complete("\"max_tokens\":3,\"stream\":true,\"stream_options\":{}")
                .events()
                .back()
                .Find("choices")
                ->as_array()
                .size(),
            0u);
  const Answer chat = Chat("\"max_tokens\":3");
  EXPECT_EQ(Keys(At(chat.json(), {"choices", "0", "message"})),
            "role content reasoning_content reasoning tool_calls ");
  EXPECT_EQ(Complete("\"temperature\":-1").body.substr(0, 18), R"({"object":"error",)");
  EXPECT_THAT(Complete("\"return_context_logits\":true").body,
              HasSubstr(R"("param":"return_context_logits")"));
  EXPECT_EQ(Chat("\"max_tokens\":3,\"prompt_token_ids\":[1,2,3]")
                .json()
                .Find("usage")
                ->Find("prompt_tokens")
                ->as_integer(),
            3);
  EXPECT_EQ(Ask("GET", "/metrics").body, "[]");
  EXPECT_THAT(Ask("GET", "/prometheus/metrics").body, HasSubstr("vllm:num_requests_running"));
  EXPECT_EQ(Ask("GET", "/health_generate").body, "Generation health check OK");
  EXPECT_EQ(At(Ask("GET", "/v1/models").json(), {"data", "0", "owned_by"}),
            json::Value("tensorrt_llm"));
}

TEST_F(RoutesTest, TrtllmTellsOfItsSteps) {
  ServerConfig config = In(ApiDialect::kTrtllm);
  config.enable_iteration_stats = true;
  Start(config);
  StepStats stats;
  stats.running = 2;
  server_->observer(0)->OnStep(stats);
  const json::Value steps = Ask("GET", "/metrics").json();
  ASSERT_EQ(steps.as_array().size(), 1u);
  EXPECT_EQ(At(steps, {"0", "numActiveRequests"}), json::Value(2));
  EXPECT_EQ(Ask("GET", "/metrics").body, "[]");
}

TEST_F(RoutesTest, RepetitionEndsASequence) {
  engine_.script = [](const Request&) {
    return FakeEngine::Script{{1, 2, 10, 11, 10, 11, 10, 11, 3, 4}};
  };
  Start();
  const Answer answer = Complete(
      "\"max_tokens\":10,\"repetition_detection\":{\"max_pattern_size\":2,\"min_count\":3}");
  EXPECT_EQ(At(answer.json(), {"choices", "0", "finish_reason"}), json::Value("repetition"));
  EXPECT_EQ(At(answer.json(), {"choices", "0", "stop_reason"}), json::Value("repetition_detected"));
  EXPECT_EQ(At(answer.json(), {"usage", "completion_tokens"}), json::Value(8));
  EXPECT_EQ(Complete("\"repetition_detection\":{\"max_pattern_size\":2,\"min_count\":1}").status,
            400);
}

TEST_F(RoutesTest, BeamSearch) {
  // The fake engine's candidates: the scripted token, then 61, 62, ... each less likely.
  engine_.script = [](const Request&) { return FakeEngine::Script{{10}}; };
  Start();
  const Answer answer = Complete(
      "\"max_tokens\":2,\"n\":2,\"temperature\":0,\"use_beam_search\":true,\"return_token_ids\":"
      "true");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::Write(At(answer.json(), {"choices", "0", "token_ids"})), "[10,10]");
  EXPECT_EQ(json::Write(At(answer.json(), {"choices", "1", "token_ids"})), "[10,61]");
  EXPECT_EQ(At(answer.json(), {"choices", "1", "finish_reason"}), json::Value("length"));
  EXPECT_EQ(At(answer.json(), {"usage", "completion_tokens"}), json::Value(4));
  EXPECT_EQ(Complete("\"use_beam_search\":true,\"stream\":true").status, 400);
  EXPECT_EQ(Complete("\"use_beam_search\":true,\"n\":65").status, 400);
  EXPECT_THAT(Complete("\"use_beam_search\":true,\"stop\":\"a\"").body,
              HasSubstr(R"("param":"stop")"));
  const Answer constrained =
      Complete(R"("use_beam_search":true,"response_format":{"type":"json_object"})");
  EXPECT_EQ(constrained.status, 400);
  EXPECT_THAT(constrained.body, AllOf(HasSubstr("use_beam_search and response_format"),
                                      HasSubstr(R"("param":"response_format")")));
}

// A required call is also a constraint.
TEST_F(RoutesTest, BeamSearchWithToolsIsRefused) {
  ServerConfig config = DefaultConfig();
  config.tool_call_parser = "hermes";
  Start(config);
  const std::string tools =
      R"("use_beam_search":true,"n":2,"tools":[{"type":"function","function":{"name":"f",)"
      R"("parameters":{"type":"object","properties":{}}}}])";
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
    const Answer answer =
        Ask("POST", "/v1/chat/completions",
            fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}],"max_tokens":2,{},)"
                        R"("tool_choice":{}}})",
                        tools, choice));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_THAT(answer.body,
                AllOf(HasSubstr("use_beam_search and tools"), HasSubstr(R"("param":"tools")")));
  }
}

TEST_F(RoutesTest, TimesOfARequest) {
  ServerConfig config = DefaultConfig();
  config.enable_per_request_metrics = true;
  config.fingerprint_mode = "none";
  Start(config);
  const json::Value body = Complete("\"max_tokens\":3").json();
  EXPECT_EQ(Keys(At(body, {"metrics"})),
            "time_to_first_token_ms generation_time_ms queue_time_ms mean_itl_ms tokens_per_second "
            "speculative_decoding ");
  EXPECT_EQ(At(body, {"system_fingerprint"}), json::Value());
  EXPECT_EQ(At(Complete("\"max_tokens\":3,\"n\":2").json(), {"metrics"}), json::Value());
  const std::vector<json::Value> events =
      Complete("\"max_tokens\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true}")
          .events();
  EXPECT_EQ(Keys(events.back()), "id object created model choices usage metrics ");
}

TEST_F(RoutesTest, RequestsOfAKeyAreOfOneClient) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"one", "two"};
  Start(config);
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  const std::string beams = R"({"prompt":"a","max_tokens":1,"use_beam_search":true})";
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "Authorization: Bearer one\r\n").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "Authorization: Bearer two\r\n").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "Authorization: Bearer one\r\n").status, 200);
  Ask("POST", "/v1/completions", beams, "Authorization: Bearer two\r\n");
  const auto requests = engine_.requests();
  EXPECT_NE(requests.at(0).client, requests.at(1).client);
  EXPECT_EQ(requests.at(0).client, requests.at(2).client);
  EXPECT_EQ(requests.at(1).client, requests.at(3).client);
}

TEST_F(RoutesTest, LimitsOfAClientAre429WithTheTimeToWait) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"one", "two"};
  config.limit_requests_per_minute = 2;
  config.limit_tokens_per_minute = 12;
  Start(config);
  const std::string body = R"({"prompt":[5,6],"max_tokens":3})";
  const ServerAnswer first = Ask("POST", "/v1/completions", body, "Authorization: Bearer one\r\n");
  EXPECT_EQ(first.status, 200);
  EXPECT_THAT(first.head, HasSubstr("x-ratelimit-limit-requests: 2\r\n"));
  EXPECT_THAT(first.head, HasSubstr("x-ratelimit-remaining-requests: 1\r\n"));
  EXPECT_THAT(first.head, HasSubstr("x-ratelimit-remaining-tokens: 7\r\n"));
  const std::string bad = R"({"prompt":7})";
  EXPECT_EQ(Ask("POST", "/v1/completions", bad, "Authorization: Bearer one\r\n").status, 400);
  const ServerAnswer refused =
      Ask("POST", "/v1/completions", body, "Authorization: Bearer one\r\n");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.head, ContainsRegex("retry-after: (2[0-9]|30)\r\n"));
  EXPECT_EQ(At(refused.json(), {"error", "code"}), json::Value(429));
  EXPECT_EQ(At(refused.json(), {"error", "type"}), json::Value("RateLimitError"));
  EXPECT_EQ(Ask("GET", "/v1/models", "", "Authorization: Bearer one\r\n").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "Authorization: Bearer two\r\n").status, 200);
}

TEST_F(RoutesTest, AHeaderChoosesTheEngine) {
  engine_.mutable_info().num_engines = 2;
  Start(DefaultConfig());
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  EXPECT_EQ(Ask("POST", "/v1/completions", body).status, 200);
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "X-data-parallel-rank: 1\r\n").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "X-data-parallel-rank: any\r\n").status, 200);
  EXPECT_EQ(engine_.requests().at(0).engine, std::nullopt);
  EXPECT_EQ(engine_.requests().at(1).engine, 1);
  EXPECT_EQ(engine_.requests().at(2).engine, std::nullopt);
  const Answer refused = Ask("POST", "/v1/completions", body, "X-data-parallel-rank: 2\r\n");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("data_parallel_rank 2 is out of range [0, 2)."));
}

TEST_F(RoutesTest, ALostEngineAmongSeveralIsToldOfAndIsNoReasonToRestart) {
  engine_.mutable_info().num_engines = 2;
  Start(DefaultConfig());
  EXPECT_EQ(Ask("GET", "/health").body, R"({"status":"ok"})");
  engine_.is_second_lost = true;
  const Answer health = Ask("GET", "/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, R"({"status":"degraded","reason":"engine 1: rank 1 has ended"})");
  EXPECT_EQ(Ask("GET", "/ready").status, 200);
  EXPECT_THAT(Ask("GET", "/metrics").body,
              HasSubstr("sluice:engine_healthy{engine=\"1\",model_name=\"abacus\"} 0.0"));
}

TEST_F(RoutesTest, PriorityHeaderGoesBeforeTheField) {
  ServerConfig config = DefaultConfig();
  config.priority_scheduling = true;
  Start(config);
  const std::string body = R"({"prompt":"a","max_tokens":1,"priority":3})";
  EXPECT_EQ(Ask("POST", "/v1/completions", body).status, 200);
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "X-Vllm-Priority: -7\r\n").status, 200);
  EXPECT_EQ(engine_.requests().at(0).priority, 3);
  EXPECT_EQ(engine_.requests().at(1).priority, -7);
  EXPECT_THAT(Ask("POST", "/v1/completions", body, "X-Vllm-Priority: high\r\n").body,
              HasSubstr(R"("param":"X-Vllm-Priority")"));
}

}  // namespace
}  // namespace sluice
