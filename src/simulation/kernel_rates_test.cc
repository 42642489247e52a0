#include "simulation/kernel_rates.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

// A report in the form of kernel-bench; rates are shares of an H200's.
json::Value Report(bool is_complete = true) {
  const std::string rows = R"([
    {"part":"limits","kernel":"copy on the device","shape":"2 GiB","achieved":4000,"unit":"GB/s"},
    {"part":"skinny","kernel":"qkv","shape":"1 x 10240 x 8192, bf16, by x","achieved":2400,"unit":"GB/s"},
    {"part":"skinny","kernel":"o","shape":"8 x 8192 x 8192, fp8, by x","achieved":2400,"unit":"GB/s"},
    {"part":"skinny","kernel":"o","shape":"64 x 8192 x 8192, fp8, by x","achieved":240,"unit":"GB/s"},
    {"part":"large","kernel":"qkv","shape":"8192 x 10240 x 8192, fp8 x fp8, by x","achieved":989.5,"unit":"TFLOP/s"},
    {"part":"large","kernel":"qkv","shape":"8192 x 10240 x 8192, bf16, by x","achieved":494.5,"unit":"TFLOP/s"},
    {"part":"large","kernel":"qkv","shape":"8192 x 10240 x 8192, int4, by x","achieved":1,"unit":"TFLOP/s"},
    {"part":"decode","kernel":"decode attention","shape":"64 x 1 tokens after 4096, bf16","achieved":1200,"unit":"GB/s"},
    {"part":"prefill","kernel":"prefill attention","shape":"1 x 4096 tokens after 0, bf16","achieved":0,"unit":"TFLOP/s","message":"lost"}
  ])";
  return *json::Parse(fmt::format(
      R"({{"device":{{"name":"NVIDIA H200"}},"complete":{},"rows":{}}})", is_complete, rows));
}

TEST(FactorsOfKernels, AreTheSheetsRatesOverTheMeasuredOnes) {
  const DeviceProfile device = FindDevices("H200")->device;
  const auto found = FactorsOfKernels(Report(), device, "r.json");
  ASSERT_TRUE(found) << found.error().message;
  const auto factor = [&](StepPart part) { return found->factors[static_cast<size_t>(part)]; };
  EXPECT_NEAR(factor(StepPart::kWeights), 2, 1e-9);
  EXPECT_NEAR(factor(StepPart::kProducts), 2, 1e-9);
  EXPECT_NEAR(factor(StepPart::kCache), 4, 1e-9);
  EXPECT_EQ(factor(StepPart::kAttention), device.factor(StepPart::kAttention));
  EXPECT_EQ(factor(StepPart::kLayers), device.factor(StepPart::kLayers));
  EXPECT_EQ(found->determined, "weights from 2 rows, cache from 1 rows, products from 2 rows");
}

TEST(FactorsOfKernels, RefusesWhatSaysNothing) {
  const DeviceProfile device = FindDevices("H200")->device;
  const auto message = [&](const json::Value& report) {
    const auto found = FactorsOfKernels(report, device, "r.json");
    return found ? "" : found.error().message;
  };
  EXPECT_THAT(message(Report(false)), HasSubstr("was interrupted"));
  EXPECT_THAT(message(*json::Parse("{}")), HasSubstr("expected a report"));
  EXPECT_THAT(message(*json::Parse(R"({"device":{},"complete":true,"rows":[]})")),
              HasSubstr("no row contains a rate"));
}

}  // namespace
}  // namespace sluice
