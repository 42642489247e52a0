#include "bench/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Intervals(const std::vector<Arrival>& plan) {
  std::vector<double> result;
  for (size_t i = 0; i < plan.size(); ++i)
    result.push_back(plan[i].seconds - (i == 0 ? 0 : plan[i - 1].seconds));
  return result;
}

// Squared coefficient of variation: 1 / shape of a gamma distribution.
double Spread(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return (squares / static_cast<double>(values.size()) - mean * mean) / (mean * mean);
}

TEST(Arrivals, NoRateSendsAllAtOnce) {
  for (const Arrival& arrival : PlanArrivals({}, 5)) EXPECT_EQ(arrival.seconds, 0);
}

TEST(Arrivals, TheLastOneComesAtCountOverRate) {
  for (double burstiness : {0.3, 1.0, 4.0, kInfinity}) {
    const auto plan = PlanArrivals({.requests_per_second = 8, .burstiness = burstiness}, 400);
    EXPECT_NEAR(plan.back().seconds, 50, 1e-9) << burstiness;
  }
}

TEST(Arrivals, BurstinessIsTheShapeOfTheIntervals) {
  for (double burstiness : {0.5, 1.0, 4.0}) {
    const auto plan =
        PlanArrivals({.requests_per_second = 10, .burstiness = burstiness, .seed = 1}, 20000);
    EXPECT_NEAR(Spread(Intervals(plan)), 1 / burstiness, 0.1 / burstiness);
  }
  for (double interval :
       Intervals(PlanArrivals({.requests_per_second = 4, .burstiness = kInfinity}, 10)))
    EXPECT_NEAR(interval, 0.25, 1e-12);
}

// Expected values: scaled cumulative sums of [numpy.random.gamma(1.0, 0.5) for _ in range(3)] after
// numpy.random.seed(7).
TEST(Arrivals, AreNumpysForTheSameSeed) {
  const double drawn[] = {0.039688454760722254, 0.7568793372793934, 0.2884909320782579};
  const double total = drawn[0] + drawn[1] + drawn[2];
  const auto plan = PlanArrivals({.requests_per_second = 2, .seed = 7}, 3);
  EXPECT_NEAR(plan[0].seconds, drawn[0] / total * 1.5, 1e-12);
  EXPECT_NEAR(plan[1].seconds, (drawn[0] + drawn[1]) / total * 1.5, 1e-12);
  EXPECT_NE(plan[0].seconds, PlanArrivals({.requests_per_second = 2, .seed = 8}, 3)[0].seconds);
}

TEST(Arrivals, RampsRunFromStartToEnd) {
  ArrivalOptions options;
  options.ramp_start = 2;
  options.ramp_end = 32;
  options.burstiness = kInfinity;
  options.ramp = ArrivalOptions::Ramp::kLinear;
  auto plan = PlanArrivals(options, 4);
  EXPECT_DOUBLE_EQ(plan[0].rate, 2);
  EXPECT_DOUBLE_EQ(plan[1].rate, 12);
  EXPECT_DOUBLE_EQ(plan[3].rate, 32);
  EXPECT_DOUBLE_EQ(plan[1].seconds, 1 / 2.0 + 1 / 12.0);
  options.ramp = ArrivalOptions::Ramp::kExponential;
  plan = PlanArrivals(options, 5);
  EXPECT_DOUBLE_EQ(plan[1].rate, 4);
  EXPECT_DOUBLE_EQ(plan[2].rate, 8);
}

}  // namespace
}  // namespace sluice::bench
