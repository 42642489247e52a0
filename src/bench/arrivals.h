// Plans when each request of a benchmark is sent.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace sluice::bench {

struct ArrivalOptions {
  double requests_per_second = std::numeric_limits<double>::infinity();
  // Shape of the gamma distribution of the intervals. 1: Poisson process; lower: burstier; higher:
  // more even; infinity: constant intervals.
  double burstiness = 1;
  enum class Ramp { kNone, kLinear, kExponential };
  // Changes the rate from start to end over the requests, instead of using requests_per_second.
  Ramp ramp = Ramp::kNone;
  double ramp_start = 0, ramp_end = 0;
  uint64_t seed = 0;
};

struct Arrival {
  double seconds = 0;  // seconds after the start of the run
  double rate = 0;     // requests per second at the time its interval was drawn
};

// Returns `count` arrivals in ascending order of time, identical to the arrivals of vLLM's
// generator with the same seed. Draws intervals from a gamma distribution; without a ramp they are
// scaled so that the last arrival is at count / rate. REQUIRES: rates and burstiness are positive.
std::vector<Arrival> PlanArrivals(const ArrivalOptions& options, int64_t count);

}  // namespace sluice::bench
