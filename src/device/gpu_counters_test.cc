#include "device/gpu_counters.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace sluice {
namespace {

// GPUs of tests/fake_nvml.
class GpuCountersTest : public ::testing::Test {
 protected:
  GpuCountersTest() {
    std::string name = ::testing::TempDir() + "nvml-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    ::setenv("SLUICE_NVML", SLUICE_FAKE_NVML_FILE, 1);
    ::setenv("SLUICE_FAKE_NVML", folder_.c_str(), 1);
  }
  ~GpuCountersTest() override {
    ::unsetenv("SLUICE_NVML");
    ::unsetenv("SLUICE_FAKE_NVML");
    std::filesystem::remove_all(folder_);
  }
  // Millijoules, used bytes, total bytes.
  void Set(const char* uuid, const char* counters) const {
    std::ofstream(folder_ / uuid) << counters;
  }

  std::filesystem::path folder_;
};

TEST_F(GpuCountersTest, CountsFromTheFirstTime) {
  Set("GPU-a", "5000 100 1000");
  Set("GPU-b", "-1 200 1000");
  GpuCounters counters;
  EXPECT_TRUE(counters.Read().empty());
  for (const char* uuid : {"GPU-a", "GPU-unknown", "GPU-b", "GPU-a"}) counters.Watch(uuid);
  EXPECT_EQ(counters.Read().size(), 2u);
  Set("GPU-a", "7500 300 1000");
  const std::vector<GpuCounters::Gpu> gpus = counters.Read();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].number, 0);
  EXPECT_EQ(gpus[0].joules, 2.5);
  EXPECT_EQ(gpus[0].used_bytes, 300);
  EXPECT_EQ(gpus[0].total_bytes, 1000);
  EXPECT_EQ(gpus[1].number, 2);
  EXPECT_EQ(gpus[1].uuid, "GPU-b");
  EXPECT_EQ(gpus[1].joules, std::nullopt);
  Set("GPU-a", "1000 300 1000");
  EXPECT_EQ(counters.Read()[0].joules, 2.5) << "a driver that was loaded again takes nothing back";
}

TEST_F(GpuCountersTest, AreNothingWithoutTheLibrary) {
  Set("GPU-a", "5000 100 1000");
  ::setenv("SLUICE_NVML", "/nowhere/libnvidia-ml.so.1", 1);
  GpuCounters counters;
  counters.Watch("GPU-a");
  EXPECT_TRUE(counters.Read().empty());
}

TEST_F(GpuCountersTest, AreNothingWhereTheLibraryDoesNotStart) {
  ::unsetenv("SLUICE_FAKE_NVML");
  GpuCounters counters;
  counters.Watch("GPU-a");
  EXPECT_TRUE(counters.Read().empty());
}

}  // namespace
}  // namespace sluice
