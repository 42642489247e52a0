#include "bench/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Sweep ExampleSweep() {
  Sweep sweep;
  sweep.model = "a<b";
  for (const char* name : {"1", "2"}) {
    SweepStep step;
    step.name = name;
    step.num_prompts = 5;
    step.metrics.completed = 5;
    step.metrics.output_throughput = name[0] == '1' ? 100 : 180;
    step.metrics.user_throughput = name[0] == '1' ? 100 : 90;
    step.metrics.ttft.percentiles = {7.5};
    sweep.steps.push_back(step);
  }
  return sweep;
}

TEST(Sweep, TableLinesAreUnderTheirHeads) {
  EXPECT_EQ(Sweep::TableHead(false).size(), Sweep::TableLine(ExampleSweep().steps[0]).size());
  EXPECT_EQ(Sweep::TableHead(true).size(), Sweep::TableHead(false).size());
}

TEST(Sweep, CsvHasALineForEachStep) {
  const std::string csv = ExampleSweep().Csv();
  EXPECT_THAT(csv, StartsWith("max_concurrency,num_prompts,completed,failed,duration,"));
  EXPECT_THAT(csv, HasSubstr("\n1,5,5,0,0,"));
  EXPECT_THAT(csv, HasSubstr("\n2,5,5,0,0,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
}

TEST(Sweep, Json) {
  const json::Value json = ExampleSweep().Json();
  const auto& steps = json.Find("steps")->as_array();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1].Find("max_concurrency")->as_integer(), 2);
  EXPECT_EQ(steps[1].Find("completed")->as_integer(), 5);
  EXPECT_DOUBLE_EQ(steps[0].Find("p99_ttft_ms")->as_double(), 7.5);
}

TEST(Sweep, PictureHasAPointForEachStepAndNeedsNoOtherFile) {
  const std::string svg = ExampleSweep().Svg();
  EXPECT_THAT(svg, StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
  size_t points = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++points;
  EXPECT_EQ(points, 2u);
  EXPECT_EQ(svg.find("href"), std::string::npos);
  EXPECT_THAT(Sweep().Svg(), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace sluice::bench
