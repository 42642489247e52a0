// The figures of one load after another, at rising concurrency or rate.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "bench/statistics.h"

namespace sluice::bench {

struct SweepStep {
  std::string name;  // "64" or, of rates, "2.5"
  int64_t num_prompts = 0;
  Metrics metrics;  // with percentiles {99}
};

struct Sweep {
  bool of_rates = false;  // steps are requests per second, not concurrent requests
  std::string model, date;
  std::vector<SweepStep> steps;

  // One line of the table that grows while the sweep runs, and its head.
  static std::string TableHead(bool of_rates);
  static std::string TableLine(const SweepStep& step);

  std::string Csv() const;
  json::Value Json() const;
  // A picture of throughput against the speed that one user sees, a point for each step.
  std::string Svg() const;
};

}  // namespace sluice::bench
