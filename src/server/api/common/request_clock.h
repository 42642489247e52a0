// Measures the latencies of one request, for --enable-per-request-metrics.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

// Thread safety: one thread at a time.
class RequestClock {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RequestClock(Clock::time_point arrival = Clock::now()) : arrival_(arrival) {}

  void OnQueued(double seconds) { queue_seconds_ = seconds; }
  void OnTokens(int64_t count, Clock::time_point now = Clock::now());

  // Appends {"time_to_first_token_ms":…,…}, or null before the first token. `whole`: includes the
  // fields that only a whole body has.
  void AppendTo(std::string& out, bool whole) const;

 private:
  Clock::time_point arrival_;
  std::optional<Clock::time_point> first_, last_;
  double queue_seconds_ = 0;
  int64_t num_tokens_ = 0;
};

}  // namespace sluice
