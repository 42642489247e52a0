// Tests the dispatcher without sockets: the server's state when a client has received its answer.
#include "server/api/dispatcher.h"

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// The answer that a client received, and the number of pending requests when it was complete.
struct HeardAnswer {
  int status = 0;
  std::string body;
  int64_t num_pending = -1;
};

class AttentiveClient : public ResponseWriter {
 public:
  explicit AttentiveClient(const Dispatcher* dispatcher) : dispatcher_(dispatcher) {}

  void Send(HttpResponse response) override {
    told_.status = response.status;
    told_.body = std::move(response.body);
    Complete();
  }
  void StartStream(HttpResponse response) override { told_.status = response.status; }
  void WriteChunk(std::string_view data) override { told_.body += data; }
  void EndStream() override { Complete(); }
  bool backlogged() const override { return false; }
  bool closed() const override { return false; }
  void SetCallbacks(std::function<void()>, std::function<void()>) override {}

  std::future<HeardAnswer> told() { return promise_.get_future(); }

 private:
  void Complete() {
    told_.num_pending = dispatcher_->num_pending();
    promise_.set_value(told_);
  }

  const Dispatcher* const dispatcher_;
  HeardAnswer told_;
  std::promise<HeardAnswer> promise_;
};

class DispatcherTest : public ::testing::Test {
 protected:
  void Start(ServerConfig config = {}) {
    config.served_model_names = {"abacus"};
    dispatcher_ = std::make_unique<Dispatcher>(config, std::make_shared<ApiKeys>(config.api_keys),
                                               nullptr, &metrics_);
    model_ = TestModelContext(config, &engine_);
    dispatcher_->Attach(model_);
  }
  ~DispatcherTest() override {
    engine_.End();
    if (dispatcher_) dispatcher_->Stop();
  }
  std::future<HeardAnswer> AskLater(const std::string& path, const std::string& body,
                                    const std::string& method = "POST") {
    HttpRequest request;
    request.method = method;
    request.target = path;
    request.path = path.substr(0, path.find('?'));
    if (request.path.size() < path.size()) request.query = path.substr(request.path.size() + 1);
    request.headers.push_back({"content-type", "application/json"});
    request.body = body;
    auto client = std::make_shared<AttentiveClient>(dispatcher_.get());
    std::future<HeardAnswer> told = client->told();
    dispatcher_->Handle(std::move(request), std::move(client));
    return told;
  }
  HeardAnswer Ask(const std::string& path, const std::string& body,
                  const std::string& method = "POST") {
    return AskLater(path, body, method).get();
  }

  FakeEngine engine_;
  Metrics metrics_;
  std::shared_ptr<const ModelContext> model_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

// A client that has its answer can send the next request immediately, even if the limit of pending
// requests is one.
TEST_F(DispatcherTest, ARequestIsNoLongerPendingOnceItsAnswerIsComplete) {
  ServerConfig config;
  config.max_pending_requests = 1;
  config.dev_mode = true;
  Start(config);
  const struct {
    const char* path;
    const char* body;
    int status;
  } requests[] = {
      {"/v1/completions", R"({"prompt":"a","max_tokens":2})", 200},
      {"/v1/completions", R"({"prompt":"a","max_tokens":2,"stream":true})", 200},
      {"/v1/completions", R"({"prompt":"a","max_tokens":2,"use_beam_search":true})", 200},
      {"/v1/completions", R"({"prompt":"a","max_tokens":-2})", 400},
      {"/v1/completions", "{", 400},
      {"/tokenize", R"({"prompt":"a"})", 200},
      {"/v1/responses", R"({"input":"a","max_output_tokens":2})", 200},
      {"/v1/responses", "{}", 400},
      {"/generative_scoring", "{}", 400},
      {"/reset_prefix_cache", "", 200},
      {"/pause", "", 200},
      {"/resume", "", 200},
  };
  for (const auto& [path, body, status] : requests) {
    const HeardAnswer told = Ask(path, body);
    EXPECT_EQ(told.status, status) << path << body << told.body;
    EXPECT_EQ(told.num_pending, 0) << path << body;
  }
}

TEST_F(DispatcherTest, ARequestIsPendingUntilItsAnswerIsComplete) {
  ServerConfig config;
  config.max_pending_requests = 1;
  Start(config);
  engine_.Hold(true);
  std::future<HeardAnswer> told = AskLater("/v1/completions", R"({"prompt":"a","max_tokens":2})");
  EXPECT_EQ(dispatcher_->num_pending(), 1);
  EXPECT_EQ(Ask("/tokenize", R"({"prompt":"a"})").status, 503);
  engine_.Hold(false);
  EXPECT_EQ(told.get().status, 200);
  EXPECT_EQ(Ask("/tokenize", R"({"prompt":"a"})").status, 200);
}

TEST_F(DispatcherTest, SleepingAndWakingAtOnceEndsAsOneOfThem) {
  ServerConfig config;
  config.dev_mode = true;
  Start(config);
  for (int i = 0; i < 50; ++i) {
    std::future<HeardAnswer> asleep = AskLater("/sleep?level=0", ""),
                             awake = AskLater("/wake_up", "");
    EXPECT_EQ(asleep.get().status, 200);
    EXPECT_EQ(awake.get().status, 200);
    const bool sleeps = Ask("/is_sleeping", "", "GET").body.find("true") != std::string::npos;
    const bool paused = Ask("/is_paused", "", "GET").body.find("true") != std::string::npos;
    ASSERT_EQ(sleeps, paused) << i;
    Ask("/wake_up", "");
  }
}

}  // namespace
}  // namespace sluice
