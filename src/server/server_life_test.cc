// The server's start, full load, drain and end.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Answer = ServerAnswer;
using Socket = TestSocket;

class ServerLifeTest : public ServerTest {};

TEST_F(ServerLifeTest, AnswersWhileTheModelLoads) {
  Start(DefaultConfig(), /*attach=*/false);
  EXPECT_EQ(Ask("GET", "/health").status, 503);
  EXPECT_EQ(Ask("GET", "/metrics").status, 200);
  EXPECT_EQ(Complete("\"max_tokens\":1").status, 503);
  Attach();
  const Answer health = Ask("GET", "/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, R"({"status":"ok"})");
  engine_.is_healthy = false;
  EXPECT_EQ(Ask("GET", "/health").status, 503);
}

TEST_F(ServerLifeTest, IsReadyWhenARequestWouldBeAnswered) {
  ServerConfig config = DefaultConfig();
  config.dev_mode = true;
  Start(config, /*attach=*/false);
  const auto is = [&](int status, const std::string& body) {
    const Answer ready = Ask("GET", "/ready");
    EXPECT_EQ(ready.status, status);
    EXPECT_EQ(ready.body, body);
  };
  is(503, R"({"status":"loading"})");
  server_->SetDownload(5, 7);
  is(503, R"({"status":"downloading","downloaded_bytes":5,"download_bytes":7})");
  server_->SetDownload(0, 0);
  Attach();
  is(200, R"({"status":"ready"})");
  EXPECT_EQ(Ask("POST", "/pause").status, 200);
  is(503, R"({"status":"paused"})");
  EXPECT_EQ(Ask("GET", "/health").status, 200) << "nothing to be restarted for";
  EXPECT_EQ(Ask("POST", "/resume").status, 200);
  EXPECT_EQ(Ask("POST", "/sleep?level=0").status, 200);
  is(503, R"({"status":"sleeping"})");
  EXPECT_EQ(Ask("POST", "/wake_up").status, 200);
  is(200, R"({"status":"ready"})");
  engine_.is_healthy = false;
  is(503, R"({"status":"unhealthy"})");
  engine_.failure_reason = "rank 1 has ended";
  is(503, R"({"status":"unhealthy","reason":"rank 1 has ended"})");
  engine_.is_healthy = true;
  server_->BeginDrain();
  is(503, R"({"status":"draining"})");
  EXPECT_EQ(Ask("GET", "/metrics").body.find("/ready"), std::string::npos);
}

// While the server leaves, a proxy starts to send requests elsewhere; requests that still arrive at
// this server are answered.
TEST_F(ServerLifeTest, ServesRequestsWhileItLeaves) {
  Start();
  server_->BeginLeaving();
  const Answer ready = Ask("GET", "/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, R"({"status":"draining"})");
  EXPECT_EQ(Ask("GET", "/health").status, 200) << "nothing to be restarted for";
  const Answer answer = Complete("\"max_tokens\":1");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("connection: close\r\n"));
  server_->BeginDrain();
  EXPECT_EQ(Complete("\"max_tokens\":1").status, 503);
}

TEST_F(ServerLifeTest, ListensOnceItIsReady) {
  ServerConfig config = DefaultConfig();
  config.listen_when_ready = true;
  Start(config, /*attach=*/false);
  const auto connects = [&] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool connected =
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    return connected;
  };
  EXPECT_NE(server_->port(), 0);
  EXPECT_FALSE(connects());
  Attach();
  EXPECT_EQ(Ask("GET", "/ready").status, 200);
  EXPECT_EQ(Complete("\"max_tokens\":1").status, 200);
}

TEST_F(ServerLifeTest, LimitsPendingRequests) {
  engine_.Hold(true);
  ServerConfig config = DefaultConfig();
  config.max_pending_requests = 1;
  Start(config);
  const std::string body = R"({"prompt":"a","max_tokens":400})";
  Socket first(server_->port());
  first.Send(Head("POST", "/v1/completions", "Content-Type: application/json\r\n", body.size()) +
             body);
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  const Answer refused = Complete("\"max_tokens\":1");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.head, HasSubstr("retry-after: 1\r\n"));
  first.Close();
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 0; }));
  EXPECT_TRUE(
      Eventually([&] { return Ask("POST", "/tokenize", R"({"prompt":"a"})").status == 200; }));
}

TEST_F(ServerLifeTest, DrainsAndEnds) {
  engine_.script = [](const Request&) { return FakeEngine::Script{std::vector<int32_t>(40, 82)}; };
  engine_.Hold(true);
  Start();
  int code = -1;
  std::thread running([&] { code = server_->Run(); });
  const std::string body = R"({"prompt":"a","max_tokens":40})";
  Socket busy(server_->port());
  busy.Send(Head("POST", "/v1/completions", "Content-Type: application/json\r\n", body.size()) +
            body);
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  server_->BeginDrain();
  EXPECT_EQ(Complete("\"max_tokens\":1").status, 503);
  EXPECT_EQ(Ask("GET", "/health").status, 503);
  engine_.Hold(false);
  EXPECT_THAT(busy.ReadAll(), HasSubstr("200 OK"));
  running.join();
  EXPECT_EQ(code, 0);
}

TEST_F(ServerLifeTest, ATemplateThatTakesLongEndsWithTheDrain) {
  ServerConfig config = DefaultConfig();
  config.trust_request_chat_template = true;
  config.enable_server_load_tracking = true;
  Start(config);
  // With this much content, the template's limit of steps is so high that it is reached long after
  // the drain has begun.
  const std::string body =
      R"({"messages":[{"role":"user","content":")" + std::string(size_t{4} << 20, 'a') +
      R"("}],"chat_template":"{{ messages[0].role }}{% for i in range(100000) %})"
      R"({% for j in range(100000) %}{% endfor %}{% endfor %}"})";
  Socket busy(server_->port());
  busy.Send(
      Head("POST", "/v1/chat/completions", "Content-Type: application/json\r\n", body.size()) +
      body);
  // The request has been accepted.
  ASSERT_TRUE(Eventually(
      [&] { return Ask("GET", "/load").body.find("\"server_load\":1") != std::string::npos; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server_->BeginDrain();
  EXPECT_THAT(busy.ReadAll(), HasSubstr("The server is shutting down."));
}

// Each step of the search submits new requests to the engine.
TEST_F(ServerLifeTest, ABeamSearchThatHasBegunEndsDuringTheDrain) {
  engine_.script = [](const Request&) { return FakeEngine::Script{{82}}; };
  engine_.Hold(true);
  Start();
  std::thread running([&] { server_->Run(); });
  const std::string body =
      R"({"prompt":"a","max_tokens":5,"n":2,"temperature":0,"use_beam_search":true})";
  Socket busy(server_->port());
  busy.Send(Head("POST", "/v1/completions", "Content-Type: application/json\r\n", body.size()) +
            body);
  ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 1; }));
  server_->BeginDrain();
  engine_.Hold(false);
  const std::string answer = busy.ReadAll();
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr(R"("completion_tokens":10)"));
  running.join();
}

// Once Run() has returned, the engine may be destroyed: by then everything is closed, even if
// another thread closes it.
TEST_F(ServerLifeTest, StopsWhileItBeginsToRun) {
  for (int i = 0; i < 30; ++i) {
    Start();
    std::thread stopping([&] { server_->Stop(); });
    EXPECT_EQ(server_->Run(), 0);
    stopping.join();
    server_.reset();
  }
}

TEST_F(ServerLifeTest, RefusesWhatDisagrees) {
  const auto error = [](const ServerConfig& config, const std::string& folder, int64_t vocab_size) {
    const Result<ModelText> text = ModelText::Load(config, folder, vocab_size, {});
    EXPECT_FALSE(text);
    return text ? "" : text.error().message;
  };
  EXPECT_THAT(error({}, kServerTestModel, 500), HasSubstr("512 tokens"));
  EXPECT_THAT(error({}, SourcePath("tests/data/server/none"), 512), HasSubstr("tokenizer.json"));
  ServerConfig config;
  config.override_generation_config = R"({"top_k":"a"})";
  EXPECT_THAT(error(config, kServerTestModel, 512), HasSubstr("top_k must be a number"));
  config = {};
  config.chat_template = "{% if %}";
  EXPECT_THAT(error(config, kServerTestModel, 512), HasSubstr("--chat-template"));
}

}  // namespace
}  // namespace sluice
