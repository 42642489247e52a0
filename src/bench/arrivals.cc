#include "bench/arrivals.h"

#include <algorithm>
#include <cmath>

#include "bench/numpy_random.h"

namespace sluice::bench {
namespace {

double RateAt(const ArrivalOptions& options, int64_t index, int64_t count) {
  const double progress =
      static_cast<double>(index) / static_cast<double>(std::max<int64_t>(count - 1, 1));
  switch (options.ramp) {
    case ArrivalOptions::Ramp::kNone: break;
    case ArrivalOptions::Ramp::kLinear:
      return options.ramp_start + (options.ramp_end - options.ramp_start) * progress;
    case ArrivalOptions::Ramp::kExponential:
      return options.ramp_start * std::pow(options.ramp_end / options.ramp_start, progress);
  }
  return options.requests_per_second;
}

}  // namespace

std::vector<Arrival> PlanArrivals(const ArrivalOptions& options, int64_t count) {
  NumpyLegacyRandom random(static_cast<uint32_t>(options.seed));
  std::vector<Arrival> plan;
  plan.reserve(static_cast<size_t>(count));
  double time = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double rate = RateAt(options, i, count);
    if (std::isfinite(rate)) {
      time += std::isfinite(options.burstiness)
                  ? random.Gamma(options.burstiness, 1.0 / (rate * options.burstiness))
                  : 1.0 / rate;
    }
    plan.push_back({time, rate});
  }
  if (options.ramp == ArrivalOptions::Ramp::kNone && time > 0) {
    const double factor = static_cast<double>(count) / options.requests_per_second / time;
    for (Arrival& arrival : plan) arrival.seconds *= factor;
  }
  return plan;
}

}  // namespace sluice::bench
