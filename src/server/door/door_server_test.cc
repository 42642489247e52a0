// Tests DoorServer over sockets, with fake engines that the tests control.
#include "server/door/door_server.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Controls and counts the loads of a model.
struct LoadScript {
  int64_t bytes = 40;
  std::string error;  // the error of each load; "": it succeeds
  bool throws = false;
  std::atomic<int> num_loads{0};
  std::atomic<FakeEngine*> engine{nullptr};  // the engine of the last load; null: none

  // While held, loads wait.
  void Hold(bool is_held) {
    {
      const std::lock_guard lock(mutex);
      held = is_held;
    }
    changed.notify_all();
  }
  void WaitForIt() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !held; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
};

class ScriptedLoader final : public ModelLoader {
 public:
  ScriptedLoader(LoadScript* script, ServerConfig config)
      : script_(script), config_(std::move(config)) {}

  Result<int64_t> Plan(const Progress&) override { return script_->bytes; }
  Result<LoadedModel> Load(std::function<EngineObserver*(int i)>, Progress loaded) override {
    loaded(1, 4);
    script_->WaitForIt();
    ++script_->num_loads;
    if (script_->throws) throw std::runtime_error("thrown by a load");
    if (!script_->error.empty()) return Fail(ErrorCode::kInvalidData, script_->error);
    auto engine = std::make_unique<FakeEngine>();
    script_->engine = engine.get();
    ModelText text = TestModelText(config_, *engine);
    return LoadedModel{std::move(engine), std::move(text)};
  }

 private:
  LoadScript* const script_;
  const ServerConfig config_;
};

class DoorTest : public ServerTest {
 protected:
  // Starts models a, b, c of 40 bytes each, with a budget of 100 bytes.
  void StartDoor(DoorConfig config = {}, std::vector<bool> pinned = {false, false, false}) {
    config.server = DefaultConfig();
    config.server.served_model_names = {};
    config.server.limit_requests_per_minute = limit_requests_per_minute_;
    config.budget_bytes = 100;
    config.retry_seconds = retry_seconds_;
    std::vector<DoorModel> models;
    for (size_t i = 0; i < 3; ++i) {
      DoorModel model;
      model.name = std::string(1, static_cast<char>('a' + i));
      model.is_pinned = pinned[i];
      model.config = DefaultConfig();
      model.config.served_model_names = {model.name};
      model.loader = std::make_unique<ScriptedLoader>(&scripts_[i], model.config);
      models.push_back(std::move(model));
    }
    auto door = DoorServer::Create(std::move(config), std::move(models));
    ASSERT_TRUE(door) << door.error().message;
    door_ = *std::move(door);
    door_->Start();
  }
  void TearDown() override {
    for (LoadScript& script : scripts_) script.Hold(false);
    door_.reset();
    engine_.End();
  }

  ServerAnswer AskDoor(const std::string& method, const std::string& path,
                       const std::string& body = "") const {
    TestSocket socket(door_->port());
    const std::string type = body.empty() ? "" : "Content-Type: application/json\r\n";
    socket.Send(Head(method, path, type, body.size()) + body);
    return Parse(socket.ReadAll());
  }
  ServerAnswer CompleteWith(const std::string& model) const {
    return AskDoor("POST", "/v1/completions",
                   R"({"model":")" + model + R"(","prompt":"The abacus","max_tokens":3})");
  }
  std::string StateOf(const std::string& model) const {
    return At(AskDoor("GET", "/v1/models/" + model).json(), {"status", "value"}).as_string();
  }

  double retry_seconds_ = 3600;
  int64_t limit_requests_per_minute_ = 0;
  LoadScript scripts_[3];
  std::unique_ptr<DoorServer> door_;
};

TEST_F(DoorTest, ALoadThatHangsDelaysNoOther) {
  scripts_[0].Hold(true);
  StartDoor();
  ServerAnswer first;
  std::thread client([&] { first = CompleteWith("a"); });
  ASSERT_TRUE(Eventually([&] { return StateOf("a") == "loading"; }));
  EXPECT_EQ(At(AskDoor("GET", "/v1/models/a").json(), {"status", "progress"}).as_double(), 0.25);
  EXPECT_EQ(CompleteWith("b").status, 200);
  EXPECT_EQ(CompleteWith("c").status, 200);  // replaces b
  EXPECT_EQ(StateOf("b"), "unloaded");
  scripts_[0].Hold(false);
  client.join();
  EXPECT_EQ(first.status, 200);
}

TEST_F(DoorTest, ModelsThatAreNotNamedByATextAreToldSo) {
  StartDoor();
  const ServerAnswer wrong = AskDoor("POST", "/v1/completions", R"({"model":5,"prompt":"a"})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_THAT(wrong.body, HasSubstr("expected the name of a model, a text"));
  EXPECT_THAT(AskDoor("POST", "/v1/completions", R"({"prompt":"a"})").body,
              HasSubstr("names no model; the models are a, b, c"));
}

TEST_F(DoorTest, AFailureIsToldUntilItIsTriedAgain) {
  scripts_[0].error = "damaged";
  scripts_[1].throws = true;
  StartDoor();
  for (int i = 0; i < 2; ++i) {
    const ServerAnswer answer = CompleteWith("a");
    EXPECT_EQ(answer.status, 500);
    EXPECT_THAT(answer.body, HasSubstr("The model `a` cannot be loaded: damaged"));
  }
  EXPECT_EQ(scripts_[0].num_loads, 1);
  EXPECT_THAT(CompleteWith("b").body, HasSubstr("thrown by a load"));
  EXPECT_EQ(CompleteWith("c").status, 200);
  EXPECT_EQ(StateOf("a"), "failed");
}

TEST_F(DoorTest, AfterAWhileALoadIsTriedAgain) {
  retry_seconds_ = 0;
  scripts_[0].error = "damaged";
  StartDoor();
  EXPECT_EQ(CompleteWith("a").status, 500);
  scripts_[0].error.clear();
  EXPECT_EQ(CompleteWith("a").status, 200);
}

TEST_F(DoorTest, WhatIsInFlightStays) {
  StartDoor();
  EXPECT_EQ(CompleteWith("a").status, 200);
  scripts_[0].engine.load()->Hold(true);
  ServerAnswer held;
  std::thread client([&] { held = CompleteWith("a"); });
  ASSERT_TRUE(Eventually([&] { return scripts_[0].engine.load()->num_unfinished() == 1; }));
  EXPECT_EQ(CompleteWith("b").status, 200);
  EXPECT_EQ(CompleteWith("c").status, 200);
  EXPECT_EQ(StateOf("a"), "loaded");
  EXPECT_EQ(StateOf("b"), "unloaded");
  scripts_[0].engine.load()->Hold(false);
  client.join();
  EXPECT_EQ(held.status, 200);
}

TEST_F(DoorTest, ModelsThatDoNotFitTogetherWaitForTheEndOfRequests) {
  scripts_[0].bytes = scripts_[1].bytes = 60;
  StartDoor();
  EXPECT_EQ(CompleteWith("a").status, 200);
  scripts_[0].engine.load()->Hold(true);
  ServerAnswer first, second, third;
  std::thread running([&] { first = CompleteWith("a"); });
  ASSERT_TRUE(Eventually([&] { return scripts_[0].engine.load()->num_unfinished() == 1; }));
  std::thread wanting([&] { second = CompleteWith("b"); });
  ASSERT_TRUE(Eventually([&] { return StateOf("b") == "waiting for memory"; }));
  ASSERT_TRUE(Eventually([&] { return StateOf("a") == "unloading"; }));
  // A further request for the busy model waits until that model has been loaded again.
  std::thread late([&] { third = CompleteWith("a"); });
  ASSERT_TRUE(Eventually([&] {
    const std::string metrics = AskDoor("GET", "/metrics").body;
    return metrics.find("sluice:model_waiting_requests{model_name=\"a\"} 1.0") != std::string::npos;
  }));
  scripts_[0].engine.load()->Hold(false);
  running.join();
  wanting.join();
  late.join();
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(third.status, 200);
  EXPECT_EQ(scripts_[0].num_loads, 2);
  EXPECT_EQ(StateOf("b"), "unloaded");
}

TEST_F(DoorTest, HealthWaitsForPinnedModels) {
  scripts_[0].Hold(true);
  StartDoor({}, {true, false, false});
  EXPECT_EQ(AskDoor("GET", "/health").status, 503);
  EXPECT_EQ(AskDoor("GET", "/ready").status, 503);
  EXPECT_EQ(CompleteWith("b").status, 200);
  scripts_[0].Hold(false);
  ASSERT_TRUE(Eventually([&] { return AskDoor("GET", "/ready").status == 200; }));
  EXPECT_THAT(AskDoor("GET", "/health").body,
              HasSubstr(R"("models":{"loaded":2,"loading":0,"failed":0,"unloaded":1})"));
}

TEST_F(DoorTest, ADrainEndsTheWait) {
  scripts_[0].Hold(true);
  StartDoor();
  ServerAnswer waiting;
  std::thread client([&] { waiting = CompleteWith("a"); });
  ASSERT_TRUE(Eventually([&] { return StateOf("a") == "loading"; }));
  door_->BeginDrain();
  client.join();
  EXPECT_EQ(waiting.status, 503);
  EXPECT_THAT(waiting.body, HasSubstr("shutting down"));
  EXPECT_TRUE(door_->IsLoading());
}

TEST_F(DoorTest, AWaitHasAnEnd) {
  scripts_[0].Hold(true);
  StartDoor({.server = {}, .wait_seconds = 0.2, .max_waiting = 1});
  const ServerAnswer waiting = CompleteWith("a");
  EXPECT_EQ(waiting.status, 503);
  EXPECT_THAT(waiting.body, HasSubstr("was not loaded within 0.2 s (it is loading)"));
  EXPECT_THAT(waiting.head, HasSubstr("retry-after: "));
}

// A client's limits apply to its requests to all models together.
TEST_F(DoorTest, ModelsShareTheLimitsOfClients) {
  limit_requests_per_minute_ = 2;
  StartDoor();
  EXPECT_EQ(CompleteWith("a").status, 200);
  const ServerAnswer second = CompleteWith("b");
  EXPECT_EQ(second.status, 200);
  EXPECT_THAT(second.head, HasSubstr("x-ratelimit-remaining-requests: 0"));
  EXPECT_EQ(CompleteWith("a").status, 429);
}

}  // namespace
}  // namespace sluice
