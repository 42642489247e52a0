#include "cli/rank_facts.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

// Returns the value of a line of /proc/self/status, in KiB.
int64_t KibibytesOf(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  }
  return -1;
}

class RankFactsTest : public ::testing::Test {
 protected:
  RankFactsTest() : folder_(std::filesystem::path(::testing::TempDir()) / "rank_facts") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~RankFactsTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string HashOfFiles() const {
    EngineConfig config;
    config.model_folder = folder_;
    const auto facts = ModelFacts(config);
    EXPECT_TRUE(facts) << facts.error().message;
    return facts ? facts->front().value : "";
  }

  const std::filesystem::path folder_;
};

TEST_F(RankFactsTest, TakesNoMoreMemoryThanTheFilesHaveBytes) {
  Write("config.json", "{}");
  // A header that claims the maximum size that is read.
  std::string header(8, '\0');
  const uint64_t claimed = uint64_t{100} << 20;
  std::memcpy(header.data(), &claimed, sizeof(claimed));
  Write("model.safetensors", header + "{}");
  HashOfFiles();                                  // makes first-use allocations
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak memory of the process
  const int64_t before = KibibytesOf("VmRSS");
  if (KibibytesOf("VmHWM") - before > 1024) GTEST_SKIP() << "the system does not reset the peak";
  HashOfFiles();
  EXPECT_LT(KibibytesOf("VmHWM") - before, 20 * 1024);
}

TEST_F(RankFactsTest, EveryHeaderAndTheConfigurationCount) {
  Write("config.json", "{}");
  Write("model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  const std::string first = HashOfFiles();
  EXPECT_EQ(HashOfFiles(), first);
  Write("model.safetensors", std::string("\2\0\0\0\0\0\0\0[]", 10));
  const std::string second = HashOfFiles();
  EXPECT_NE(second, first);
  Write("config.json", "{ }");
  EXPECT_NE(HashOfFiles(), second);
}

}  // namespace
}  // namespace sluice::cli
