// The whole server over sockets: answers, streams, limits, headers.
#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/api/context/route.h"
#include "server/server_testing.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Answer = ServerAnswer;
using Socket = TestSocket;

// Tokens that a model generated: " wis", a broken character, " tu", another, " he", ...
const std::vector<int32_t> kTokens = {342, 82, 226, 334, 232, 421, 198, 458, 54, 243, 458};

TEST_F(ServerTest, Completion) {
  engine_.script = [](const Request&) { return FakeEngine::Script{kTokens}; };
  Start();
  const Answer answer = Complete("\"max_tokens\":4,\"temperature\":0,\"return_token_ids\":true");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("content-type: application/json\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("vary: Origin\r\n"));
  const json::Value body = answer.json();
  EXPECT_EQ(
      Keys(body),
      "id object created model choices service_tier system_fingerprint usage kv_transfer_params "
      "ec_transfer_params metrics ");
  EXPECT_EQ(Keys(At(body, {"choices", "0"})),
            "index text logprobs finish_reason stop_reason token_ids prompt_logprobs "
            "prompt_token_ids routed_experts ");
  EXPECT_EQ(At(body, {"choices", "0", "text"}), json::Value(" wis\uFFFD tu"));
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), json::Value("length"));
  EXPECT_EQ(json::Write(At(body, {"choices", "0", "token_ids"})), "[342,82,226,334]");
  EXPECT_EQ(json::Write(At(body, {"choices", "0", "prompt_token_ids"})),
            "[506,51,295,220,64,65,64,300,82,270,78,84,77,83,82,266,295,257,68,64,67,82]");
  EXPECT_EQ(
      json::Write(At(body, {"usage"})),
      R"({"prompt_tokens":22,"total_tokens":26,"completion_tokens":4,"prompt_tokens_details":null,"completion_tokens_details":null})");
  EXPECT_THAT(At(body, {"id"}).as_string(), StartsWith("cmpl-"));
  const Request request = engine_.requests().at(0);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.max_tokens, 4);
}

// config.json may name another end token: the answer ends at either token, as in vLLM.
TEST_F(ServerTest, TheTokenizersEndTokenEndsAnswers) {
  engine_.mutable_info().end_tokens = {7};
  Start();
  ASSERT_EQ(Complete("\"max_tokens\":4").status, 200);
  const int32_t end = *(*Tokenizer::Load(kServerTestModel))->TokenToId("<|eot_id|>");
  const Request request = engine_.requests().at(0);
  EXPECT_THAT(request.end_tokens, ::testing::UnorderedElementsAre(7, end));
}

TEST_F(ServerTest, StreamedCompletion) {
  engine_.script = [](const Request&) { return FakeEngine::Script{kTokens}; };
  Start();
  const Answer answer =
      Complete("\"max_tokens\":4,\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  EXPECT_THAT(answer.head, HasSubstr("content-type: text/event-stream; charset=utf-8\r\n"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  const std::vector<json::Value> events = answer.events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(Keys(events[0]), "id object created model choices ");
  EXPECT_EQ(Keys(At(events[0], {"choices", "0"})),
            "index text logprobs finish_reason stop_reason prompt_token_ids token_ids ");
  EXPECT_EQ(At(events[2], {"choices", "0", "text"}), json::Value(""));
  EXPECT_EQ(ChunkText(events), " wis\uFFFD tu");
  EXPECT_EQ(At(events[3], {"choices", "0", "finish_reason"}), json::Value("length"));
  EXPECT_EQ(Keys(events[4]), "id object created model choices usage system_fingerprint ");
  EXPECT_EQ(json::Write(At(events[4], {"usage"})),
            R"({"prompt_tokens":22,"total_tokens":26,"completion_tokens":4})");
  const std::vector<json::Value> plain = Complete("\"max_tokens\":2,\"stream\":true").events();
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(Keys(plain[1]), "id object created model choices system_fingerprint ");
  const std::vector<json::Value> usage =
      Complete(
          "\"max_tokens\":2,\"stream\":true,\"stream_options\":{\"include_usage\":true,"
          "\"continuous_usage_stats\":true}")
          .events();
  EXPECT_EQ(json::Write(At(usage[0], {"usage"})),
            R"({"prompt_tokens":22,"total_tokens":23,"completion_tokens":1})");
}

TEST_F(ServerTest, AStepThatFailsEndsItsRequestsWithAnError) {
  const Error error{ErrorCode::kInternal, "the step failed: the device was lost", ""};
  engine_.script = [&](const Request&) {
    return FakeEngine::Script{.tokens = {342, 458}, .error = error};
  };
  Start();
  const auto expect_error = [](const json::Value& body) {
    EXPECT_EQ(At(body, {"error", "message"}), json::Value("the step failed: the device was lost"));
    EXPECT_EQ(At(body, {"error", "type"}), json::Value("InternalServerError"));
    EXPECT_EQ(At(body, {"error", "code"}), json::Value(500));
  };
  for (const Answer& whole : {Complete("\"max_tokens\":8"), Chat("\"max_tokens\":8")}) {
    EXPECT_EQ(whole.status, 500);
    expect_error(whole.json());
  }
  for (const Answer& streamed :
       {Complete("\"max_tokens\":8,\"stream\":true"), Chat("\"max_tokens\":8,\"stream\":true")}) {
    EXPECT_EQ(streamed.status, 200) << "sent before the step failed";
    EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
    const std::vector<json::Value> events = streamed.events();
    ASSERT_GE(events.size(), 2u);
    expect_error(events.back());
  }
}

TEST_F(ServerTest, StreamInterval) {
  engine_.script = [](const Request&) { return FakeEngine::Script{kTokens}; };
  Start();
  EXPECT_EQ(Complete("\"max_tokens\":8,\"stream\":true,\"stream_interval\":3").events().size(), 4u);
}

TEST_F(ServerTest, ChatCompletion) {
  engine_.script = [](const Request&) {
    return FakeEngine::Script{{458, 274, 393, 510}, FinishReason::kStop};
  };
  Start();
  const Answer answer =
      Chat("\"max_tokens\":8,\"return_token_ids\":true,\"return_prompt_text\":true");
  EXPECT_EQ(answer.status, 200) << answer.body;
  const json::Value body = answer.json();
  EXPECT_EQ(Keys(body),
            "id object created model choices service_tier system_fingerprint usage prompt_logprobs "
            "prompt_token_ids prompt_text kv_transfer_params ec_transfer_params metrics ");
  EXPECT_EQ(Keys(At(body, {"choices", "0"})),
            "index message logprobs finish_reason stop_reason token_ids routed_experts ");
  EXPECT_EQ(
      json::Write(At(body, {"choices", "0", "message"})),
      R"({"role":"assistant","content":"'tifoli","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null})");
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), json::Value("stop"));
  EXPECT_EQ(json::Write(At(body, {"choices", "0", "token_ids"})), "[458,274,393,510]");
  EXPECT_EQ(At(body, {"usage", "prompt_tokens"}), json::Value(43));
  EXPECT_EQ(At(body, {"usage", "completion_tokens"}), json::Value(4));
  EXPECT_THAT(At(body, {"prompt_text"}).as_string(),
              StartsWith("<|begin_of_text|><|start_header_id|>user"));
}

TEST_F(ServerTest, StreamedChat) {
  engine_.script = [](const Request&) { return FakeEngine::Script{kTokens}; };
  Start();
  const std::vector<json::Value> events = Chat("\"max_tokens\":3,\"n\":2,\"stream\":true").events();
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(
      json::Write(At(events[0], {"choices"})),
      R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(At(events[1], {"choices", "0", "index"}), json::Value(1));
  EXPECT_EQ(Keys(events[0]), "id object created model choices prompt_token_ids prompt_text ");
  EXPECT_EQ(
      json::Write(At(events[2], {"choices"})),
      R"([{"index":0,"delta":{"content":" wi"},"logprobs":null,"finish_reason":null,"token_ids":null}])");
  EXPECT_EQ(ChunkText(events, 0), " wis");
  EXPECT_EQ(ChunkText(events, 1), " wis");
  EXPECT_EQ(Keys(At(events.back(), {"choices", "0"})),
            "index delta logprobs finish_reason stop_reason token_ids ");
}

TEST_F(ServerTest, StopStringEndsTheSequence) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 200; ++i) tokens.insert(tokens.end(), kTokens.begin(), kTokens.end());
  engine_.script = [tokens](const Request&) { return FakeEngine::Script{tokens}; };
  engine_.step_time = 50ms;  // 400 steps would take 20 seconds
  Start();
  const json::Value body =
      Complete("\"max_tokens\":400,\"stop\":[\"tu\"],\"return_token_ids\":true").json();
  EXPECT_EQ(At(body, {"choices", "0", "text"}), json::Value(" wis\uFFFD "));
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), json::Value("stop"));
  EXPECT_EQ(At(body, {"choices", "0", "stop_reason"}), json::Value("tu"));
  EXPECT_EQ(json::Write(At(body, {"choices", "0", "token_ids"})), "[342,82,226,334]");
  EXPECT_EQ(At(body, {"usage", "completion_tokens"}), json::Value(4));
  EXPECT_TRUE(Eventually([&] { return engine_.num_unfinished() == 0; }));
  EXPECT_LT(engine_.num_steps(), 400);
}

TEST_F(ServerTest, StopTokenIsHiddenUnlessWanted) {
  engine_.script = [](const Request&) {
    return FakeEngine::Script{{82, 300}, FinishReason::kStop, 300};
  };
  Start();
  json::Value body = Complete("\"stop_token_ids\":[300]").json();
  EXPECT_EQ(At(body, {"choices", "0", "text"}), json::Value("s"));
  EXPECT_EQ(At(body, {"choices", "0", "stop_reason"}), json::Value(300));
  body = Complete("\"stop_token_ids\":[300],\"include_stop_str_in_output\":true").json();
  EXPECT_EQ(At(body, {"choices", "0", "text"}), json::Value("scu"));
}

TEST_F(ServerTest, SeveralPromptsAndSequences) {
  engine_.script = [](const Request& request) {
    return FakeEngine::Script{{static_cast<int32_t>(request.prompt.back()), 82}};
  };
  Start();
  const Answer answer =
      Ask("POST", "/v1/completions", R"({"prompt":[[5,64],[65],[66]],"max_tokens":2,"n":2})");
  const json::Value body = answer.json();
  ASSERT_EQ(At(body, {"choices"}).as_array().size(), 6u) << answer.body;
  EXPECT_EQ(At(body, {"choices", "0", "text"}), json::Value("as"));
  EXPECT_EQ(At(body, {"choices", "3", "text"}), json::Value("bs"));
  EXPECT_EQ(At(body, {"choices", "5", "index"}), json::Value(5));
  EXPECT_EQ(At(body, {"usage", "prompt_tokens"}), json::Value(4));
  EXPECT_EQ(At(body, {"usage", "completion_tokens"}), json::Value(12));
}

TEST_F(ServerTest, EchoWithLogprobsAsTheEvaluationHarnessReadsThem) {
  engine_.script = [](const Request&) { return FakeEngine::Script{{334}}; };
  Start();
  const Answer answer = Ask(
      "POST", "/v1/completions",
      R"({"prompt":[[5,17,101,260,333]],"max_tokens":1,"logprobs":1,"echo":true,"temperature":0,"seed":1234})");
  const json::Value body = answer.json();
  const json::Value& logprobs = At(body, {"choices", "0", "logprobs"});
  EXPECT_EQ(At(logprobs, {"token_logprobs"}).as_array().size(), 6u) << answer.body;
  EXPECT_TRUE(At(logprobs, {"token_logprobs", "0"}).is_null());
  EXPECT_TRUE(At(logprobs, {"top_logprobs", "0"}).is_null());
  EXPECT_EQ(json::Write(At(logprobs, {"tokens"})),
            "[\"&\",\"2\",\"\",\"\uFFFD w\",\" ka\",\" tu\"]");
  EXPECT_EQ(json::Write(At(logprobs, {"text_offset"})), "[0,1,2,2,5,8]");
  EXPECT_EQ(json::Write(At(logprobs, {"top_logprobs", "5"})), R"({" tu":-0.5})");
  EXPECT_EQ(At(body, {"choices", "0", "text"}), json::Value("&2\uFFFD w ka tu"));
  EXPECT_EQ(engine_.requests().at(0).sampling.prompt_logprobs, 1);
}

TEST_F(ServerTest, EchoWithoutOutput) {
  Start();
  const json::Value body = Complete("\"max_tokens\":0,\"echo\":true").json();
  EXPECT_EQ(At(body, {"choices", "0", "text"}), json::Value("The abacus counts the beads"));
  EXPECT_EQ(At(body, {"usage", "completion_tokens"}), json::Value(1));
  const std::vector<json::Value> events =
      Complete("\"max_tokens\":3,\"echo\":true,\"stream\":true").events();
  EXPECT_THAT(At(events[0], {"choices", "0", "text"}).as_string(),
              StartsWith("The abacus counts the beads"));
  EXPECT_TRUE(At(events[0], {"choices", "0", "prompt_token_ids"}).is_array());
}

TEST_F(ServerTest, ChatLogprobs) {
  engine_.script = [](const Request&) { return FakeEngine::Script{{226, 334}}; };
  Start();
  const json::Value body = Chat("\"max_tokens\":2,\"logprobs\":true,\"top_logprobs\":1").json();
  EXPECT_EQ(
      json::Write(At(body, {"choices", "0", "logprobs"})),
      R"({"content":[{"token":"","logprob":-0.5,"bytes":[],"top_logprobs":[{"token":"","logprob":-0.5,"bytes":[]}]},)"
      "{\"token\":\"\uFFFD tu\",\"logprob\":-0.5,\"bytes\":[239,191,189,32,116,117],"
      "\"top_logprobs\":[{\"token\":\"\uFFFD tu\",\"logprob\":-0.5,"
      "\"bytes\":[239,191,189,32,116,117]}]}]}");
}

TEST_F(ServerTest, ContinuesTheFinalMessage) {
  Start();
  const Answer answer = Ask(
      "POST", "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"Seven"}],"echo":true,)"
      R"("continue_final_message":true,"add_generation_prompt":false,"max_tokens":1})");
  EXPECT_THAT(At(answer.json(), {"choices", "0", "message", "content"}).as_string(),
              StartsWith("Seven"));
  EXPECT_EQ(Chat("\"continue_final_message\":true").status, 400);
  EXPECT_EQ(At(Chat("\"add_generation_prompt\":false").json(), {"choices", "0", "message", "role"}),
            json::Value("user"));
}

TEST_F(ServerTest, ChecksValuesAgainstTheModel) {
  Start();
  const struct {
    const char* fields;
    const char* param;  // null: `param` is null
    const char* words;
  } cases[] = {
      {"\"temperature\":-1", "temperature",
       "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)"},
      {"\"temperature\":3", "temperature", "temperature must be in [0, 2], got 3.0."},
      {"\"temperature\":\"NaN\"", "temperature", "temperature must be a finite number, got nan."},
      {"\"top_p\":0", "top_p", "top_p must be in (0, 1], got 0.0."},
      {"\"top_k\":-2", nullptr, "top_k must be 0 (disable), or at least 1, got -2."},
      {"\"min_p\":1.1", nullptr, "min_p must be in [0, 1], got 1.1."},
      {"\"min_p\":\"NaN\"", nullptr, "min_p must be in [0, 1], got nan."},
      {"\"presence_penalty\":2.1", nullptr, "presence_penalty must be in [-2, 2], got 2.1."},
      {"\"repetition_penalty\":0", nullptr,
       "repetition_penalty must be greater than zero, got 0.0."},
      {"\"n\":0", nullptr, "n must be at least 1, got 0."},
      {"\"n\":20000", nullptr, "n must be at most 16384 (VLLM_MAX_N_SEQUENCES), got 20000."},
      {"\"n\":2,\"temperature\":0", nullptr, "n must be 1 when using greedy sampling, got 2."},
      {"\"stop\":[\"\"]", nullptr, "stop cannot contain an empty string."},
      {"\"stop_token_ids\":[512]", "stop_token_ids",
       "token_id(s) [512] in stop_token_ids contain out-of-vocab"},
      {"\"max_tokens\":0", "max_tokens", "max_tokens must be at least 1, got 0."},
      {"\"max_tokens\":513", "max_tokens",
       "max_tokens=513 cannot be greater than max_model_len=512."},
      {"\"min_tokens\":17", nullptr,
       "min_tokens must be less than or equal to max_tokens=16, got 17."},
      {"\"logprobs\":21", "logprobs",
       "Requested sample logprobs of 21, which is greater than max allowed: 20"},
      {"\"logprobs\":-1", "logprobs", "Requested sample logprobs of 512"},
      {"\"logit_bias\":{\"512\":1}", "logit_bias",
       "token_id(s) [512] in logit_bias contain out-of-vocab"},
      {"\"logit_bias\":{\"abc\":1}", "logit_bias", R"(["abc"])"},
      {"\"allowed_token_ids\":[]", "allowed_token_ids", "allowed_token_ids is not None and empty!"},
      {"\"bad_words\":[\"\"]", nullptr, "bad_words cannot contain an empty string."},
      {"\"truncate_prompt_tokens\":0", nullptr, "The decoder prompt cannot be empty"},
      {"\"truncate_prompt_tokens\":1000", "truncate_prompt_tokens",
       "cannot be greater than max_model_len=512"},
  };
  for (const auto& test : cases) {
    const Answer answer = Complete(test.fields);
    EXPECT_EQ(answer.status, 400) << test.fields;
    const json::Value error = At(answer.json(), {"error"});
    EXPECT_EQ(Keys(error), "message type param code ");
    EXPECT_THAT(At(error, {"message"}).as_string(), HasSubstr(test.words)) << test.fields;
    EXPECT_EQ(At(error, {"param"}), test.param == nullptr ? json::Value() : json::Value(test.param))
        << test.fields;
  }
  EXPECT_TRUE(engine_.requests().empty());
}

TEST_F(ServerTest, ChecksPrompts) {
  Start();
  const auto ask = [&](const std::string& prompt) {
    return Ask("POST", "/v1/completions", R"({"prompt":)" + prompt + "}");
  };
  EXPECT_THAT(ask("[512]").body, HasSubstr("Token id 512 is out of vocabulary"));
  EXPECT_THAT(ask("[18446744073709551616]").body, HasSubstr("out of vocabulary"));
  EXPECT_THAT(ask("[[]]").body, HasSubstr("The decoder prompt cannot be empty"));
  EXPECT_THAT(ask("\"a\\ud800b\"").body, HasSubstr("surrogate"));
  EXPECT_EQ(ask("[\"\"]").status, 200);
  std::string beads;
  for (int i = 0; i < 400; ++i) beads += "bead ";
  EXPECT_THAT(ask("\"" + beads + "\"").body, HasSubstr("maximum context length is 512 tokens"));
  EXPECT_THAT(ask("\"" + std::string(10 << 20, 'x') + "\"").body,
              HasSubstr("more than 12800 characters"));
  std::string ids = "[7";
  for (int i = 0; i < 511; ++i) ids += ",7";
  EXPECT_THAT(
      ask(ids + "]").body,
      HasSubstr(
          "prompt contains 512 input tokens, which leaves no room for a token of the answer"));
  EXPECT_THAT(ask(ids + ",7]").body, HasSubstr("prompt contains 513 input tokens"));
}

TEST_F(ServerTest, FillsInDefaults) {
  engine_.mutable_info().generation.temperature = 0.6;
  engine_.mutable_info().generation.top_p = 0.9;
  engine_.mutable_info().generation.max_new_tokens = 100;
  ServerConfig config = DefaultConfig();
  config.override_generation_config = R"({"top_p":0.8,"top_k":7})";
  Start(config);
  Complete("\"max_tokens\":1");
  Chat("\"temperature\":0.001");
  const std::vector<Request> requests = engine_.requests();
  EXPECT_EQ(requests.at(0).sampling.temperature, 0.6);
  EXPECT_EQ(requests.at(0).sampling.top_p, 0.8);
  EXPECT_EQ(requests.at(0).sampling.top_k, 7);
  EXPECT_EQ(requests.at(1).sampling.temperature, 0.01);
  EXPECT_EQ(requests.at(1).sampling.max_tokens, 100);
}

TEST_F(ServerTest, ClientThatGoesAwayAbortsItsWork) {
  engine_.script = [](const Request&) { return FakeEngine::Script{std::vector<int32_t>(400, 82)}; };
  engine_.step_time = 50ms;
  Start();
  for (const bool stream : {true, false}) {
    const std::string body = std::string(R"({"prompt":["a","b"],"max_tokens":400,"stream":)") +
                             (stream ? "true}" : "false}");
    {
      Socket socket(server_->port());
      socket.Send(
          Head("POST", "/v1/completions", "Content-Type: application/json\r\n", body.size()) +
          body);
      ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 2; }));
      if (stream) {
        EXPECT_THAT(socket.Read(), HasSubstr("200 OK"));
      }
    }
    EXPECT_TRUE(Eventually([&] { return engine_.num_unfinished() == 0; })) << stream;
  }
  EXPECT_EQ(engine_.num_aborted(), 4);
}

TEST_F(ServerTest, MergesForASlowReaderAndLosesNothing) {
  constexpr int kCount = 450;
  engine_.script = [](const Request&) {
    return FakeEngine::Script{std::vector<int32_t>(kCount, 82)};
  };
  Start();
  // 40 sequences x 450 events x 230 bytes are much more than the sockets' buffers.
  const std::string body = R"({"prompt":"a","max_tokens":450,"n":40,"stream":true})";
  Socket slow(server_->port());
  slow.Send(Head("POST", "/v1/completions", "Content-Type: application/json\r\n", body.size()) +
            body);
  ASSERT_TRUE(
      Eventually([&] { return engine_.requests().size() == 1 && engine_.num_unfinished() == 0; }));
  EXPECT_EQ(Complete("\"max_tokens\":2").status, 200);
  const std::string all = slow.ReadAll();
  size_t letters = 0;
  for (size_t at = 0; (at = all.find("\"text\":\"", at)) != std::string::npos;) {
    at += 8;
    while (all[at] == 's') ++letters, ++at;
  }
  EXPECT_EQ(letters, size_t{40 * kCount});
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
}

// HEAD is answered as GET without the body; routes without GET do not accept HEAD.
TEST_F(ServerTest, HeadIsGetWithoutABody) {
  ServerConfig config = DefaultConfig();
  config.dev_mode = true;
  Start(config);
  for (const Route* route : OpenRoutes(config)) {
    const auto takes = [&](std::string_view method) {
      return std::ranges::find(route->methods, method) != route->methods.end();
    };
    const std::string path(route->path);
    if (path.find('{') != std::string::npos) continue;
    const Answer head = Ask("HEAD", path);
    EXPECT_EQ(head.body, "") << path;
    if (!takes("GET")) {
      EXPECT_EQ(head.status, 405) << path;
      continue;
    }
    EXPECT_EQ(head.status, Ask("GET", path).status) << path;
    EXPECT_EQ(head.head.find("chunked"), std::string::npos) << path;
  }
  EXPECT_EQ(Ask("HEAD", "/health").status, 200);
  EXPECT_EQ(Ask("HEAD", "/v1/models/abacus").status, 200);
  EXPECT_EQ(Ask("HEAD", "/v1/models/nope").status, 404);
  EXPECT_EQ(Ask("HEAD", "/nope").status, 404);
  EXPECT_THAT(Ask("POST", "/v1/models").head, HasSubstr("allow: GET, HEAD\r\n"));
}

TEST_F(ServerTest, ABodyInACodingIsRefusedByItsName) {
  Start();
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  for (const char* coding : {"gzip", "deflate", "br", "zstd", "GZIP", "gzip, identity"}) {
    const Answer refused =
        Ask("POST", "/v1/completions", body, fmt::format("Content-Encoding: {}\r\n", coding));
    EXPECT_EQ(refused.status, 415) << coding;
    EXPECT_THAT(refused.head, HasSubstr("accept-encoding: identity\r\n"));
    EXPECT_EQ(At(refused.json(), {"error", "param"}), json::Value("Content-Encoding"));
    EXPECT_THAT(refused.body, HasSubstr(coding));
  }
  EXPECT_EQ(Ask("POST", "/v1/messages", "\x1f\x8b", "Content-Encoding: gzip\r\n").status, 415);
  EXPECT_EQ(Ask("POST", "/v1/completions", body, "Content-Encoding: Identity\r\n").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/models", "", "Content-Encoding: gzip\r\n").status, 200)
      << "there is no body";
}

TEST_F(ServerTest, Routes) {
  Start();
  EXPECT_EQ(Ask("GET", "/version").body, R"({"version":"1.2.3"})");
  EXPECT_EQ(Ask("GET", "/load").body, R"({"server_load":0})");
  EXPECT_EQ(Ask("POST", "/ping").status, 200);
  EXPECT_EQ(Ask("GET", "/nope").body, R"({"detail":"Not Found"})");
  EXPECT_EQ(Ask("GET", "/HEALTH").status, 404);
  EXPECT_EQ(Ask("GET", "//health").status, 404);
  EXPECT_EQ(Ask("GET", "/v1/../health").status, 404);
  EXPECT_EQ(Ask("GET", "/%68ealth").status, 200);
  const Answer wrong = Ask("GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.body, R"({"detail":"Method Not Allowed"})");
  EXPECT_THAT(wrong.head, HasSubstr("allow: POST\r\n"));
  const Answer redirect = Ask("GET", "/v1/models/");
  EXPECT_EQ(redirect.status, 307);
  EXPECT_THAT(redirect.head, HasSubstr("location: http://x/v1/models\r\n"));
  EXPECT_EQ(Ask("POST", "/v1/audio/speech", "{}").status, 404);
  EXPECT_EQ(Ask("POST", "/v1/completions/render", "{}").status, 403);
  EXPECT_EQ(Ask("POST", "/v1/responses", "{}").status, 400);
  const json::Value models = Ask("GET", "/v1/models").json();
  EXPECT_EQ(Keys(At(models, {"data", "0"})),
            "id object created owned_by root parent max_model_len permission type display_name "
            "created_at capabilities ");
  EXPECT_EQ(At(models, {"data", "1", "id"}), json::Value("other-name"));
  EXPECT_EQ(At(models, {"data", "0", "type"}), json::Value("base"));
  EXPECT_EQ(Ask("GET", "/v1/models/abacus").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/models/nope").status, 404);
  EXPECT_EQ(Ask("POST", "/invocations", R"({"prompt":"a","max_tokens":1})").status, 200);
  // A request is counted only after its answer is sent.
  EXPECT_TRUE(Eventually([&] {
    return Ask("GET", "/metrics")
               .body.find(
                   "http_requests_total{handler=\"/v1/completions\",method=\"GET\",status=\"4xx\"} "
                   "1.0") != std::string::npos;
  }));
}

TEST_F(ServerTest, ModelNames) {
  Start();
  const auto ask = [&](const std::string& model) {
    return Ask("POST", "/v1/completions",
               R"({"model":)" + model + R"(,"prompt":"a","max_tokens":1})");
  };
  for (const char* name : {"\"abacus\"", "\"other-name\"", "\"abacus/\"", "null", "\"\""}) {
    const Answer answer = ask(name);
    EXPECT_EQ(answer.status, 200) << name;
    EXPECT_EQ(At(answer.json(), {"model"}), json::Value("abacus"));
  }
  const Answer unknown = ask("\"nope\"");
  EXPECT_EQ(
      unknown.body,
      R"({"error":{"message":"The model `nope` does not exist. Valid aliases: abacus, other-name.",)"
      R"("type":"NotFoundError","param":"model","code":404}})");
}

TEST_F(ServerTest, RequestIds) {
  ServerConfig config = DefaultConfig();
  config.enable_request_id_headers = true;
  Start(config);
  const std::string body = R"({"prompt":"a","max_tokens":1,"request_id":"field"})";
  const Answer given = Ask("POST", "/v1/completions", body, "X-Request-Id: header\r\n");
  EXPECT_EQ(At(given.json(), {"id"}), json::Value("cmpl-header"));
  EXPECT_THAT(given.head, HasSubstr("x-request-id: header\r\n"));
  EXPECT_EQ(At(Ask("POST", "/v1/completions", body).json(), {"id"}), json::Value("cmpl-field"));
}

TEST_F(ServerTest, Keys) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"sk-bead-0001", "sk-bead-0002"};
  Start(config);
  const auto status = [&](const std::string& path, const std::string& header) {
    return Ask("GET", path, "", header.empty() ? "" : "Authorization: " + header + "\r\n").status;
  };
  for (const char* path : {"/v1/models", "/v1", "/v1/nope", "/v1models", "/v2/x",
                           "/v1/../v1/models", "/%76%31/models"}) {
    EXPECT_EQ(status(path, ""), 401) << path;
    EXPECT_NE(status(path, "Bearer sk-bead-0001"), 401) << path;
  }
  for (const char* path : {"/health", "/metrics", "/version", "/load", "//v1/models"})
    EXPECT_NE(status(path, ""), 401) << path;
  for (const char* good : {"Bearer sk-bead-0002", "bearer sk-bead-0001", "BEARER sk-bead-0001"}) {
    EXPECT_EQ(status("/v1/models", good), 200) << good;
  }
  for (const char* bad :
       {"Bearer wrong", "sk-bead-0001", "Basic sk-bead-0001", "Bearer  sk-bead-0001", "Bearer ",
        "Bearer", "Bearer sk-bead-000", "Bearer sk-bead-00011", "Bearer SK-BEAD-0001"}) {
    EXPECT_EQ(status("/v1/models", bad), 401) << bad;
  }
  const Answer refused = Ask("POST", "/v1/completions", "{", "Origin: http://a.example\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.body, R"({"error":"Unauthorized"})");
  EXPECT_THAT(refused.head, Not(HasSubstr("vary")));
}

TEST_F(ServerTest, KeysOfAFile) {
  ServerConfig config = DefaultConfig();
  config.api_key_file = ::testing::TempDir() + "server_test_keys.txt";
  const auto write = [&](const std::string& text) { std::ofstream(config.api_key_file) << text; };
  const auto status = [&](const std::string& key) {
    return Ask("GET", "/v1/models", "", "Authorization: Bearer " + key + "\r\n").status;
  };
  write("sk-bead-0001\n");
  Start(config);
  EXPECT_EQ(status("sk-bead-0001"), 200);
  EXPECT_EQ(status("sk-bead-0002"), 401);
  EXPECT_EQ(Ask("GET", "/v1/models").status, 401);
  write("sk-bead-0002\n");
  server_->Reload();
  EXPECT_EQ(status("sk-bead-0001"), 401);
  EXPECT_EQ(status("sk-bead-0002"), 200);
  write("no key\n");
  server_->Reload();
  EXPECT_EQ(status("sk-bead-0002"), 200);
  config.port = 0;
  const auto refused = Server::Create(config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr(config.api_key_file + ": line 1: "));
  std::filesystem::remove(config.api_key_file);
}

TEST_F(ServerTest, CrossOrigin) {
  ServerConfig config = DefaultConfig();
  config.allowed_origins = {"http://a.example"};
  config.allow_credentials = true;
  Start(config);
  const std::string preflight =
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-foo\r\n";
  const Answer good =
      Ask("OPTIONS", "/v1/completions", "", "Origin: http://a.example\r\n" + preflight);
  EXPECT_EQ(good.status, 200);
  EXPECT_THAT(good.head, HasSubstr("access-control-allow-origin: http://a.example\r\n"));
  EXPECT_THAT(good.head, HasSubstr("access-control-allow-headers: x-foo\r\n"));
  const Answer bad =
      Ask("OPTIONS", "/v1/completions", "", "Origin: http://b.example\r\n" + preflight);
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.body, "Disallowed CORS origin");
  const Answer simple = Ask("GET", "/health", "", "Origin: http://a.example\r\n");
  EXPECT_THAT(simple.head, HasSubstr("access-control-allow-origin: http://a.example\r\n"));
  EXPECT_THAT(simple.head, HasSubstr("vary: Origin\r\n"));
  EXPECT_THAT(Ask("GET", "/health", "", "Origin: http://b.example\r\n").head,
              Not(HasSubstr("allow-origin")));
}

TEST_F(ServerTest, RootPath) {
  ServerConfig config = DefaultConfig();
  config.root_path = "/api";
  Start(config);
  EXPECT_EQ(Ask("GET", "/api/health").status, 200);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  EXPECT_EQ(Ask("GET", "/apihealth").status, 404);
}

TEST_F(ServerTest, TokenizeAndDetokenize) {
  ServerConfig config = DefaultConfig();
  config.enable_tokenizer_info_endpoint = true;
  Start(config);
  EXPECT_EQ(
      Ask("POST", "/tokenize", R"({"prompt":"a<|eot_id|>","return_token_strs":true})").body,
      R"({"count":3,"max_model_len":512,"tokens":[506,64,510],"token_strs":["<|begin_of_text|>","a","<|eot_id|>"]})");
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"prompt":"a","add_special_tokens":false})").body,
            R"({"count":1,"max_model_len":512,"tokens":[64],"token_strs":null})");
  EXPECT_EQ(At(Ask("POST", "/tokenize", R"({"messages":[{"role":"user","content":"b"}]})").json(),
               {"count"}),
            json::Value(23));
  EXPECT_THAT(Ask("POST", "/tokenize", "{}").body, HasSubstr(R"("param":"body.prompt")"));
  EXPECT_EQ(Ask("POST", "/detokenize", R"({"tokens":[506,"510",65]})").body,
            R"({"prompt":"<|begin_of_text|><|eot_id|>b"})");
  // As in vLLM, some strings are accepted as booleans, and booleans as integers.
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"prompt":"a","return_token_strs":"no"})").body,
            R"({"count":2,"max_model_len":512,"tokens":[506,64],"token_strs":null})");
  EXPECT_EQ(Ask("POST", "/detokenize", R"({"tokens":[true]})").body,
            Ask("POST", "/detokenize", R"({"tokens":[1]})").body);
  for (const char* bad : {R"("x")", R"("")", R"("2")", "2", "-1", "0.5", "[]", "{}"}) {
    const Answer answer =
        Ask("POST", "/tokenize", R"({"prompt":"a","return_token_strs":)" + std::string(bad) + "}");
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_THAT(answer.body, HasSubstr(R"("param":"body.return_token_strs")")) << bad;
  }
  for (const char* bad :
       {R"({"tokens":[-1]})", R"({"tokens":"a"})", R"({"tokens":[1099511627776]})", "{}"}) {
    EXPECT_EQ(Ask("POST", "/detokenize", bad).status, 400) << bad;
    const Answer outside = Ask("POST", "/detokenize", R"({"tokens":[5,512]})");
    EXPECT_EQ(outside.status, 400);
    EXPECT_THAT(outside.body, HasSubstr("token id 512, but the vocabulary is [0, 512)"));
  }
  EXPECT_EQ(At(Ask("GET", "/tokenizer_info").json(), {"eos_token"}), json::Value("<|eot_id|>"));
}

}  // namespace
}  // namespace sluice
