#include "simulation/device_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

Result<DeviceProfile> Read(const std::string& text) {
  return ReadDeviceProfile(*json::Parse(text), "d.yaml");
}

TEST(FindDevices, ReadsANameAndANumber) {
  const auto eight = FindDevices("H200x8");
  ASSERT_TRUE(eight) << eight.error().message;
  EXPECT_EQ(eight->device.name, "H200");
  EXPECT_EQ(eight->count, 8);
  EXPECT_EQ(FindDevices("gb200")->device.name, "GB200");
  EXPECT_EQ(FindDevices("DGX Spark")->device.name, "GB10");
  EXPECT_EQ(FindDevices("RTX 6000 Prox2")->device.name, "RTX-PRO-6000");
  EXPECT_EQ(FindDevices("RTX 6000 Prox2")->count, 2);
  EXPECT_TRUE(FindDevices("Xeon-8480")->device.is_cpu);
}

TEST(FindDevices, ListsTheTableForAnUnknownName) {
  for (const char* text : {"H2000", "H200x", "H200x8x", "", "x8", "H200x99999999999"})
    EXPECT_FALSE(FindDevices(text)) << text;
  EXPECT_THAT(FindDevices("H300x2").error().message, HasSubstr("expected one of H100, H200, B200"));
  EXPECT_THAT(FindDevices("H200x0").error().message, HasSubstr("expected 1 to 256 devices"));
}

TEST(FindDevices, EveryDeviceOfTheTableIsComplete) {
  for (const DeviceProfile& device : DeviceProfiles()) {
    EXPECT_GT(device.memory_bytes, device.system_bytes) << device.name;
    EXPECT_GT(device.bytes_per_second, 0) << device.name;
    EXPECT_GT(device.bf16_flops, 0) << device.name;
    EXPECT_GT(device.link_bytes_per_second, 0) << device.name;
    EXPECT_GE(device.factor(StepPart::kWeights), 1) << device.name;
    EXPECT_GE(device.factor(StepPart::kProducts), 1) << device.name;
    EXPECT_GT(device.error, 0) << device.name;
    EXPECT_FALSE(device.source.empty()) << device.name;
  }
}

TEST(ReadDeviceProfile, TakesWhatIsMissingFromAnother) {
  const auto device = Read(
      R"({"name": "H200 half", "like": "H200", "memory": 70000000000, "factors": {"steps": 0.002}})");
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(device->memory_bytes, 70'000'000'000);
  EXPECT_EQ(device->bytes_per_second, 4.8e12);
  EXPECT_EQ(device->factor(StepPart::kSteps), 0.002);
  EXPECT_EQ(device->factors[0], FindDevices("H200")->device.factors[0]);
}

TEST(ReadDeviceProfile, NamesWhatIsWrong) {
  const auto message = [](const std::string& text) {
    const auto device = Read(text);
    return device ? std::string("accepted") : device.error().message;
  };
  EXPECT_THAT(message(R"({"like": "H200"})"), HasSubstr("name"));
  EXPECT_THAT(message(R"({"name": "x", "memory": 1e9, "bandwidth": 1e9})"),
              HasSubstr("bf16_flops"));
  EXPECT_THAT(message(R"({"name": "x", "like": "H200", "memory": -5})"), HasSubstr("memory"));
  EXPECT_THAT(message(R"({"name": "x", "like": "H200", "bandwith": 5})"),
              HasSubstr("\"bandwith\" is not known, did you mean bandwidth"));
  EXPECT_THAT(message(R"({"name": "x", "like": "H2"})"), HasSubstr("d.yaml: like"));
  EXPECT_THAT(message(R"({"name": "x", "memory": 1e9, "bandwidth": 1e9, "bf16_flops": 1e12})"),
              HasSubstr("like or factors"));
  EXPECT_THAT(message(R"({"name": "x", "like": "H200", "factors": {"weights": -1}})"),
              HasSubstr("factors: weights"));
  EXPECT_THAT(message(R"({"name": "x", "memory": 1e9, "bandwidth": 1e9, "bf16_flops": 1e12,
                          "factors": {"weights": 1}})"),
              HasSubstr("cache"));
  EXPECT_THAT(message(R"({"name": "a\r\nb", "like": "H200"})"), HasSubstr("letters, digits"));
  EXPECT_THAT(message(R"({"name": "x", "like": "H200", "system_memory": 1e15})"),
              HasSubstr("must be less than memory"));
}

}  // namespace
}  // namespace sluice
