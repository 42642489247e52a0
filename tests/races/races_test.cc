// Data races of kernels, found by ThreadSanitizer: each CUDA thread is one of its fibers
// (kernels/cuda/emulated_races.h). Seeded faults are reported, the right kernels are not, and
// neither are the project's own, under their checks. Built with SLUICE_SANITIZE=thread alone.
//
// With RACES=all in the environment all shapes of the checks run, else a core of them.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/seeded_faults_testing.h"

namespace {

std::atomic<int> num_reports = 0;

}  // namespace

extern "C" {
// ThreadSanitizer calls these. What it finds is counted here instead of ending the program.
const char* __tsan_default_options() {
  return "exitcode=0:halt_on_error=0:report_thread_leaks=0:suppress_equal_addresses=0";
}
void __tsan_on_report(void* /*report*/) {
  ++num_reports;
}
}

namespace sluice {
namespace {

using emulated::faults::Fault;

class Races : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(emulator::FindRaces(true)); }
  void TearDown() override {
    emulator::FindRaces(false);
    emulator::SetOrder(emulator::Order::kForward);
  }

  template <typename Run>
  static int CountReports(const Run& run, uint64_t seeds = 3) {
    const int before = num_reports;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      emulator::SetOrder(emulator::Order::kSeeded, seed);
      run();
    }
    return num_reports - before;
  }
};

TEST_F(Races, OfAPipelineOfCopiesAreFound) {
  using namespace emulated::faults;
  EXPECT_EQ(CountReports(RunPipeline<Fault::kNone>), 0);
  EXPECT_GT(CountReports(RunPipeline<Fault::kCopyBeforeBarrier>), 0);
  EXPECT_GT(CountReports(RunPipeline<Fault::kWaitTooFew>), 0);
  EXPECT_GT(CountReports(RunPipeline<Fault::kNoBarrier>), 0);
}

TEST_F(Races, OfASumByBlocksAreFound) {
  using namespace emulated::faults;
  const auto count = [](bool (*run)(bool)) { return CountReports([run] { run(false); }); };
  EXPECT_EQ(count(RunSplitSum<Fault::kNone>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kNoFence>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kFenceOfOne>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kFenceTooLate>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kNoFenceToRead>), 0);
}

TEST_F(Races, OfLanesAndBlocksAreFound) {
  using namespace emulated::faults;
  EXPECT_EQ(CountReports(RunExchange<Fault::kNone>), 0);
  EXPECT_GT(CountReports(RunExchange<Fault::kNoWarpBarrier>), 0);
  EXPECT_GT(CountReports(RunExchange<Fault::kBlocksOverlap>), 0);
}

class RacesOfKernels : public Races, public testing::WithParamInterface<std::string> {};

// All parts but that of the vendor's library, which has no kernels here.
std::vector<std::string> PartsOfKernels() {
  std::vector<std::string> names;
  for (const checks::CheckPart& part : checks::KernelCheckParts()) {
    if (part.name != "library") names.emplace_back(part.name);
  }
  return names;
}

TEST_P(RacesOfKernels, AreNone) {
  const char* all = getenv("RACES");
  const bool runs_all = all != nullptr && strcmp(all, "all") == 0;
  auto device = checks::DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  const auto run = [&] {
    checks::CheckRun checks(*device, {},
                            runs_all ? checks::CheckExtent::kQuick : checks::CheckExtent::kSome);
    for (const checks::CheckPart& part : checks::KernelCheckParts()) {
      if (part.name == GetParam()) checks.RunPart(part);
    }
    EXPECT_GT(checks.rows().size(), 0u);
    for (const checks::CheckRow& row : checks.rows())
      EXPECT_TRUE(row.passed || row.skipped) << row.name << " " << row.shape << ": " << row.message;
  };
  EXPECT_EQ(CountReports(run, /*seeds=*/1), 0);
}

INSTANTIATE_TEST_SUITE_P(Parts, RacesOfKernels, testing::ValuesIn(PartsOfKernels()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace sluice
