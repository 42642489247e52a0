// Limits for each client: requests and tokens per minute, and concurrent requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "server/api/common/api_error.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// Each limit per minute is a token bucket with the capacity of one minute. It starts full and
// refills at a constant rate. Admitting a request takes one unit from the bucket of requests.
// Prompt tokens are taken from the bucket of tokens when they are encoded, other tokens as they are
// generated. The bucket of tokens may become negative; no request is admitted until it is positive
// again.
//
// Memory: one entry per client with requests, and at most `kMaxIdleClients` other entries. Further
// idle clients are forgotten, the least recently used first, and start again with full buckets. An
// idle bucket is full after a minute anyway, unless it was negative. Thread safety: all methods may
// be called from any thread.
class ClientLimits : public std::enable_shared_from_this<ClientLimits> {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMaxIdleClients = 4096;

  struct Limits {  // 0: no limit
    int64_t requests_per_minute = 0;
    int64_t tokens_per_minute = 0;
    int64_t concurrent_requests = 0;
  };

 private:
  struct Bucket {
    double level = 0;
    Clock::time_point time;  // time of the last update of `level`
  };
  struct Client {
    uint64_t id = 0;
    Bucket requests, tokens;
    int64_t running = 0;  // number of requests that are not completely answered
    int64_t tickets = 0;
  };
  using Clients = std::list<Client>;

 public:
  // An admitted request. Thread safety: like ClientLimits.
  class Ticket {
   public:
    Ticket(std::shared_ptr<ClientLimits> limits, Clients::iterator client)
        : limits_(std::move(limits)), client_(client) {}
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket();

    // Call if the request outlives its answer (a background response). Leave() must be called once
    // more for each Stay().
    void Stay();
    // Call when the request has been answered. The request then does not count as running.
    void Leave();
    void TakeTokens(int64_t count);

   private:
    const std::shared_ptr<ClientLimits> limits_;
    const Clients::iterator client_;
    int num_parts_ = 1;  // number of Leave() calls still to come; guarded by the mutex of `limits_`
  };

  explicit ClientLimits(const Limits& limits, std::function<Clock::time_point()> now = Clock::now)
      : limits_(limits), now_(std::move(now)) {}

  bool any() const {
    return limits_.requests_per_minute + limits_.tokens_per_minute + limits_.concurrent_requests >
           0;
  }

  // Admits a request, or returns a 429 that names the exceeded limit and when to retry.
  ApiResult<std::shared_ptr<Ticket>> Enter(uint64_t client);

  // Appends x-ratelimit-limit-requests, -remaining-, -reset-, and the same for tokens, for the
  // configured limits.
  void AppendHeaders(uint64_t client, std::vector<HttpHeader>& headers);

  // Number of clients with an entry, active or idle.
  size_t num_clients() const;

 private:
  Clients::iterator Find(uint64_t client) REQUIRES(mutex_);
  void ForgetIdle() REQUIRES(mutex_);
  void Refill(Bucket& bucket, int64_t per_minute) REQUIRES(mutex_);

  const Limits limits_;
  const std::function<Clock::time_point()> now_;
  mutable Mutex mutex_;
  Clients clients_ GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<uint64_t, Clients::iterator> by_id_ GUARDED_BY(mutex_);
  size_t num_idle_ GUARDED_BY(mutex_) = 0;  // number of clients without tickets
};

ClientLimits::Limits ClientLimitsOf(const ServerConfig& config);

// Formats seconds as OpenAI does: "250ms", "12s", "6m0s".
std::string DurationText(double seconds);

}  // namespace sluice
