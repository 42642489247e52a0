// The server as it starts, fills up, drains and ends.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "server/server_testing.h"

namespace sluice {
namespace {

using testing::HasSubstr;
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

// Its steps are requests of their own to the engine.
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

// Once Run() has returned the engine may go: whoever closes, all is closed by then.
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
  Start(DefaultConfig(), /*attach=*/false);
  FakeEngine small(/*vocab_size=*/500);
  const Status attached = server_->Attach(&small, kServerTestModel);
  ASSERT_FALSE(attached);
  EXPECT_THAT(attached.error().message, HasSubstr("512 tokens"));
  EXPECT_FALSE(server_->Attach(&engine_, SourcePath("tests/data/server/none")));
}

}  // namespace
}  // namespace sluice
