// Publishes changes of the prefix cache to routers, over ZeroMQ.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/owned_fd.h"
#include "base/result.h"
#include "cache/cache_listener.h"
#include "cache/tier_listener.h"
#include "events/event_batch.h"
#include "events/event_encoder.h"
#include "events/event_settings.h"

namespace sluice {

// A batch is a message of three frames on a PUB socket: topic, batch number (8 bytes, big-endian,
// from 0), payload (event_encoder.h). A slow subscriber misses messages, which it detects by their
// numbers. It can request them on the ROUTER socket of `replay_endpoint`: it sends an empty frame
// and the first number that it needs. It receives an empty frame and the three frames of each kept
// batch, and finally the number -1 with an empty payload.
//
// A background thread encodes and sends; subscribers never delay a step. Memory: at most
// max_queue_size batches waiting for that thread, buffer_steps batches and kMostKeptBytes kept by
// it, and hwm batches for each subscriber.
//
// Thread safety: see CacheListener.
class CacheEventPublisher final : public CacheListener, public TierListener {
 public:
  static constexpr size_t kMostKeptBytes = size_t{256} << 20;

  // Binds the endpoints of `rank`, or connects to endpoints that name a host. kAddressInUse or
  // kInvalidArgument if that fails.
  static Result<std::unique_ptr<CacheEventPublisher>> Start(const CacheEventSettings& settings,
                                                            int64_t rank);
  // Publishes queued batches first, for at most a second.
  ~CacheEventPublisher() override;

  // The address for subscribers, with the actual port if the system chose it; "" if there is none.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }

  void OnStart(int64_t num_blocks, int block_size, std::span<const AttentionSpan> groups) override;
  void OnStored(int64_t group, BlockId anchor, BlockId parent, std::span<const int32_t> tokens,
                std::string_view salt) override;
  void OnRemoved(int64_t group, BlockId anchor) override;
  void OnCleared() override;
  void OnTierName(const TierName& name, int64_t group, BlockId anchor, BlockId parent,
                  std::span<const int32_t> tokens, std::string_view salt) override;
  void OnTierChange(const TierChange& change) override;
  bool wants_everything() const override;
  void EndBatch() override;
  CacheEventCounts counts() const override;

 private:
  struct CloseContext {
    void operator()(void* context) const;
  };
  struct CloseSocket {
    void operator()(void* socket) const;
  };
  using Socket = std::unique_ptr<void, CloseSocket>;
  struct Kept {
    uint64_t number = 0;
    std::string payload;
  };

  CacheEventPublisher(const CacheEventSettings& settings, int64_t rank);
  Status Open(int64_t rank);
  void AddBlock(CacheEvent event, std::span<const int32_t> tokens, std::string_view salt);
  // Binds or connects, and stores the socket's actual address.
  Status OpenSocket(Socket& socket, int type, const std::string& address, std::string& endpoint);
  void Wake();
  void Run();
  void Publish(CacheEventBatch batch);
  // Sends three frames; subscribers with full queues miss them.
  void Send(uint64_t number, const std::string& payload);
  void AnswerReplay();
  void Replay(const std::string& identity, uint64_t first);

  const CacheEventSettings settings_;
  std::unique_ptr<void, CloseContext> context_;
  Socket publish_, replay_;  // used only by the thread while it runs
  std::string endpoint_, replay_endpoint_;
  OwnedFd wake_;  // an eventfd, written when the queue changes

  // Used by the engine's thread.
  CacheEventBatch batch_;
  bool is_started_ = false;
  bool is_lost_ = false;  // a batch was dropped since the last complete state

  mutable Mutex mutex_;
  std::deque<CacheEventBatch> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::atomic<uint64_t> num_published_{0}, num_dropped_{0}, num_missed_{0};

  // Used by the publishing thread.
  CacheEventEncoder encoder_;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
  uint64_t next_number_ = 0;

  std::thread thread_;  // last: it uses all members above
};

}  // namespace sluice
