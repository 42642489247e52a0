// The figures of a series of loads with rising concurrency or rate.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "bench/statistics.h"

namespace sluice::bench {

struct SweepStep {
  std::string name;  // "64", or "2.5" if it is a rate
  int64_t num_prompts = 0;
  Metrics metrics;  // computed with percentiles {99}
};

struct Sweep {
  bool of_rates = false;  // whether the steps vary requests per second instead of concurrent
                          // requests
  std::string model, date;
  std::vector<SweepStep> steps;

  // The header and one line of the table, which is printed while the sweep runs.
  static std::string TableHead(bool of_rates);
  static std::string TableLine(const SweepStep& step);

  std::string Csv() const;
  json::Value Json() const;
  // A plot of throughput over the speed for a single user, with a point for each step.
  std::string Svg() const;
};

}  // namespace sluice::bench
