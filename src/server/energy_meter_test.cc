#include "server/energy_meter.h"

#include <string>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"

namespace sluice {
namespace {

void WriteText(const std::filesystem::path& path, const std::string& text) {
  testing::WriteFile(path, text + "\n");
}

TEST(EnergyMeterTest, AddsUpWhatCountersThatStartAgainHaveCounted) {
  const testing::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  const auto zone = [&](const char* name, const char* says, uint64_t now) {
    WriteText(folder / name / "name", says);
    WriteText(folder / name / "energy_uj", std::to_string(now));
    WriteText(folder / name / "max_energy_range_uj", "10000000");
  };
  zone("intel-rapl:0", "package-0", 9000000);
  zone("intel-rapl:0:0", "dram", 0);
  zone("intel-rapl-mmio:0", "package-0", 0);
  WriteText(folder / "dtpm" / "name", "x");
  EnergyMeter meter(folder);
  zone("intel-rapl:0", "package-0", 500000);
  zone("intel-rapl:0:0", "dram", 250000);
  std::vector<EnergyMeter::Domain> domains = meter.Read();
  ASSERT_EQ(domains.size(), 2u);
  EXPECT_EQ(domains[0].name, "package-0");
  EXPECT_DOUBLE_EQ(domains[0].joules, 1.5);
  EXPECT_EQ(domains[1].name, "package-0/dram");
  EXPECT_DOUBLE_EQ(domains[1].joules, 0.25);
  std::filesystem::remove(folder / "intel-rapl:0" / "energy_uj");
  EXPECT_DOUBLE_EQ(meter.Read()[0].joules, 1.5) << "a counter that is gone stays";
}

TEST(EnergyMeterTest, IsEmptyWithoutCounters) {
  EXPECT_TRUE(EnergyMeter("/nonexistent").Read().empty());
}

}  // namespace
}  // namespace sluice
