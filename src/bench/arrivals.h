// When each request of a benchmark is sent.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace sluice::bench {

struct ArrivalOptions {
  double requests_per_second = std::numeric_limits<double>::infinity();
  // Shape of the gamma distribution of the intervals: 1 is a Poisson process, less is burstier,
  // more is more even, infinity is a constant interval.
  double burstiness = 1;
  enum class Ramp { kNone, kLinear, kExponential };
  // The rate runs from start to end over the requests, in place of requests_per_second.
  Ramp ramp = Ramp::kNone;
  double ramp_start = 0, ramp_end = 0;
  uint64_t seed = 0;
};

struct Arrival {
  double seconds = 0;  // after the start
  double rate = 0;     // requests per second that held when its interval was drawn
};

// `count` arrivals in order, those of vLLM's generator for the same seed: intervals from a gamma
// distribution; without a ramp they are scaled so that the last one comes at count / rate.
// REQUIRES: rates and burstiness above 0.
std::vector<Arrival> PlanArrivals(const ArrivalOptions& options, int64_t count);

}  // namespace sluice::bench
