#include "server/idle_streams_testing.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <thread>

#include "server/server_testing.h"

namespace sluice {
namespace {

// The benchmark measures 10,000 streams in 40 MB. With the few streams of this test, the memory of
// threads and tables adds some hundred bytes to each.
constexpr int64_t kBytesPerStream = 4800;

int64_t AllocatedBytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

class IdleStreamsTest : public ServerTest {
 protected:
  // Returns the bytes per stream of `count` streams that have received a token and wait for the
  // next.
  int64_t BytesPerStream(int count, int words) {
    ServerConfig config = DefaultConfig();
    config.max_connections = config.max_pending_requests = 4 * count;
    Start(config, /*attach=*/false);
    EXPECT_TRUE(server_->Attach(&holding_, TestModelText(config, holding_)));
    {
      IdleStreams first(server_->port(), words);  // causes the one-time allocations
      first.Open(count / 4);
    }
    // One-time allocations of threads and tables may occur at any time, but not in all three
    // rounds.
    int64_t least = std::numeric_limits<int64_t>::max();
    std::list<IdleStreams> streams;
    for (int round = 0; round < 3; ++round) {
      const int64_t before = AllocatedBytes();
      streams.emplace_back(server_->port(), words).Open(count);
      // The threads that started the last streams may not yet have freed temporary memory.
      for (int i = 0; i < 200; ++i) {
        least = std::min(least, (AllocatedBytes() - before) / count);
        if (least <= kBytesPerStream) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return least;
  }

  HoldingEngine holding_;
};

TEST_F(IdleStreamsTest, AStreamThatWaitsForATokenKeepsLittle) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator does not count";
#endif
  EXPECT_LE(BytesPerStream(/*count=*/120, /*words=*/12), kBytesPerStream);
}

TEST_F(IdleStreamsTest, AStreamKeepsNothingOfItsPrompt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator does not count";
#endif
  EXPECT_LE(BytesPerStream(/*count=*/120, /*words=*/300), kBytesPerStream);
}

}  // namespace
}  // namespace sluice
