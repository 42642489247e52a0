// Publishes what the prefix cache gains and loses to routers, over ZeroMQ.
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
#include "events/event_batch.h"
#include "events/event_encoder.h"
#include "events/event_settings.h"

namespace sluice {

// A batch is a message of three frames on a PUB socket: topic, number of the batch (8 bytes,
// big-endian, from 0), payload (event_encoder.h). A subscriber that reads too slowly misses
// messages, which it sees by their numbers. It may ask for them on the ROUTER socket of
// `replay_endpoint`: a message of an empty frame and the first number that it wants is answered
// with an empty frame and those three for each batch that is kept, and at last with the number -1
// and an empty payload.
//
// A thread of its own encodes and sends; no subscriber delays a step. Memory: at most
// max_queue_size batches before that thread, buffer_steps and kMostKeptBytes after it, and hwm for
// each subscriber.
//
// Thread safety: as CacheListener.
class CacheEventPublisher final : public CacheListener {
 public:
  static constexpr size_t kMostKeptBytes = size_t{256} << 20;

  // Binds the endpoints of `rank`, or connects to those that name a host. kAddressInUse or
  // kInvalidArgument where that fails.
  static Result<std::unique_ptr<CacheEventPublisher>> Start(const CacheEventSettings& settings,
                                                            int64_t rank);
  // Publishes what is queued, for at most a second.
  ~CacheEventPublisher() override;

  // Where subscribers connect to; with a port, where the system has chosen it. "": nowhere.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }

  void OnStart(int64_t num_blocks, int block_size, std::span<const AttentionSpan> groups) override;
  void OnStored(int64_t group, BlockId anchor, BlockId parent, std::span<const int32_t> tokens,
                std::string_view salt) override;
  void OnRemoved(int64_t group, BlockId anchor) override;
  void OnCleared() override;
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
  // Binds or connects, and stores the address that the socket then has.
  Status OpenSocket(Socket& socket, int type, const std::string& address, std::string& endpoint);
  void Wake();
  void Run();
  void Publish(CacheEventBatch batch);
  // Sends three frames; the slow subscribers miss them.
  void Send(uint64_t number, const std::string& payload);
  void AnswerReplay();
  void Replay(const std::string& identity, uint64_t first);

  const CacheEventSettings settings_;
  std::unique_ptr<void, CloseContext> context_;
  Socket publish_, replay_;  // used by the thread, once it runs
  std::string endpoint_, replay_endpoint_;
  OwnedFd wake_;  // an eventfd: the queue has changed

  // Used on the engine's thread.
  CacheEventBatch batch_;
  bool is_started_ = false;
  bool is_lost_ = false;  // a batch was dropped since everything was told

  mutable Mutex mutex_;
  std::deque<CacheEventBatch> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::atomic<uint64_t> num_published_{0}, num_dropped_{0}, num_missed_{0};

  // Used on the publishing thread.
  CacheEventEncoder encoder_;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
  uint64_t next_number_ = 0;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice
