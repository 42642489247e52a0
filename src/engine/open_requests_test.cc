#include "engine/open_requests.h"

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;

// Requests end in one thread while the requests of a failed engine are ended in another. No request
// may remain.
TEST(OpenRequests, EndWhileOthersFail) {
  Router router(2, 4, 0);
  OpenRequests open;
  std::atomic<bool> done{false};
  std::thread failing([&] {
    while (!done) {
      open.FailAt(1, {ErrorCode::kUnavailable, "gone", ""});
      std::this_thread::yield();
    }
  });
  Request request;
  request.prompt = {1, 2, 3};
  constexpr bool kBoth[] = {true, true};
  for (int i = 0; i < 5000; ++i) {
    request.sink = std::make_shared<CollectingSink>();
    const auto sink =
        std::make_shared<RoutedSink>(open, router, router.Choose(request, kBoth), request);
    open.Add(sink);
  }
  done = true;
  failing.join();
  EXPECT_EQ(open.size(), 0);
  EXPECT_EQ(router.unfinished_tokens(0), 0);
  EXPECT_EQ(router.unfinished_tokens(1), 0);
}

// Has no memory for statistics.
class SinkWithoutStats final : public RequestSink {
 public:
  void OnPrompt(PromptResult) override {}
  void OnUpdate(SequenceUpdate) override {}
  void OnError(Error) override { ++num_errors; }
  bool OnStats(const RequestStats&, EngineObserver*) override { throw std::bad_alloc(); }

  int num_errors = 0;
};

TEST(OpenRequests, ASinkThatThrowsHidesNoFailure) {
  Router router(1, 4, 0);
  OpenRequests open;
  constexpr bool kOne[] = {true};
  std::vector<std::shared_ptr<SinkWithoutStats>> inner;
  std::vector<std::shared_ptr<RoutedSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.prompt = {1, 2, 3};
    request.sink = inner.emplace_back(std::make_shared<SinkWithoutStats>());
    sinks.push_back(
        std::make_shared<RoutedSink>(open, router, router.Choose(request, kOne), request));
    open.Add(sinks.back());
  }
  open.FailAt(0, {ErrorCode::kUnavailable, "gone", ""});
  for (const auto& sink : inner) EXPECT_EQ(sink->num_errors, 1);
  EXPECT_EQ(open.size(), 0);
}

TEST(OpenRequests, WhoHasFailedHearsNoMore) {
  Router router(1, 4, 0);
  OpenRequests open;
  const auto inner = std::make_shared<CollectingSink>();
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling.max_tokens = 5;
  request.sink = inner;
  constexpr bool kOne[] = {true};
  const auto sink =
      std::make_shared<RoutedSink>(open, router, router.Choose(request, kOne), request);
  open.Add(sink);
  sink->OnPrompt({});
  SequenceUpdate update;
  update.tokens = {7, 8};
  sink->OnUpdate(update);
  EXPECT_EQ(router.unfinished_tokens(0), 3);
  open.FailAt(0, {ErrorCode::kUnavailable, "gone", ""});
  open.FailAt(0, {ErrorCode::kUnavailable, "again", ""});
  update.finish = FinishReason::kLength;
  sink->OnUpdate(update);
  sink->OnError({ErrorCode::kInternal, "late", ""});
  ASSERT_TRUE(inner->error);
  EXPECT_EQ(inner->error->message, "gone");
  EXPECT_EQ(inner->tokens(), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(open.size(), 0);
  EXPECT_EQ(router.unfinished_tokens(0), 0);
}

}  // namespace
}  // namespace sluice
