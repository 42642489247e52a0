// Finds data races of kernels with ThreadSanitizer: each CUDA thread is a fiber of that tool
// (kernels/cuda/emulated_races.h). Seeded faults must be reported. Correct kernels must not be
// reported. Neither must the project's own kernels during their checks, unless the test leaves out
// one of their barriers. Built only with SLUICE_SANITIZE=thread.
//
// With RACES=all in the environment, all shapes of the checks run, otherwise only the most
// important ones.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/seeded_faults_testing.h"
#include "selftest/check_parts.h"

namespace {

std::atomic<int> num_reports = 0;

}  // namespace

extern "C" {
// ThreadSanitizer calls these functions. They count its findings instead of ending the program.
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
using emulated::faults::FaultStream;

bool RunsAll() {
  const char* all = getenv("RACES");
  return all != nullptr && strcmp(all, "all") == 0;
}

class Races : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(emulator::FindRaces(true)); }
  void TearDown() override {
    emulator::FindRaces(false);
    emulator::LeaveOutBarrier("");
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

// Adds an adapter's result to one row: both kernels, with several warps.
void RunAddLora() {
  constexpr int64_t kCols = 512, kRows = 8;
  constexpr int kRank = 8;
  const std::vector<uint16_t> numbers(kRank * (kCols + kRows), 0x3F80);
  const std::vector<float> x(kCols, 1);
  const device::LoraFactor factor = {kRank, 1};
  const device::LoraTile tile = {.slot = 0, .first = 0, .count = 1};
  const int32_t row = 0;
  std::vector<float> y(kRows), h(kRank);
  device::AddLoraArgs args = {};
  args.x = x.data();
  args.x_type = args.y_type = ElementType::kF32;
  args.cols = kCols;
  args.y = y.data();
  args.y_stride = kRows;
  args.scale = 1;
  args.num_modules = 1;
  args.modules[0] = {numbers.data(), numbers.data() + kRank * kCols, &factor, 0, kRows};
  args.max_rank = kRank;
  args.h = h.data();
  args.num_tiles = 1;
  args.tiles = &tile;
  args.rows = &row;
  args.num_rows = 1;
  args.top_k = 1;
  FaultStream stream;
  device::KernelsOf(DeviceKind::kEmulated).add_lora(stream.handle, args);
  stream.queue.RunAll();
}

// Draws a token from a row of logits, with a bias and a penalty for one token, and its logprobs.
void RunDraw() {
  constexpr int64_t kCols = 600, kTop = 20;
  std::vector<float> logits(kCols);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 100) / 16;
  const kernels::DrawSettings settings = {
      .scale = 1, .farthest = 50, .top_k = 0, .top_p = 1, .uniform = 0.5};
  // Different threads change token 7: one adds its bias of 1, another applies its count of 2. The
  // count of token 3 is between them.
  std::vector<uint32_t> words = {7, 0x3F800000, 3, 1, 7, 2};
  kernels::DrawExtras extras;
  extras.num_biases = 1;
  extras.counts = 2;
  extras.num_counts = 2;
  extras.repetition = 1.5f;
  extras.is_changed = 1;
  extras.logprobs = kernels::LogprobsOf::kRaw;
  extras.num_top = kTop;
  int32_t token = 0;
  kernels::DrawError error = {};
  kernels::DrawnLogprobs logprobs = {};
  std::vector<kernels::TopLogit> tops(kTop);
  FaultStream stream;
  device::KernelsOf(DeviceKind::kEmulated)
      .sample_rows(stream.handle, {.logits = logits.data(),
                                   .rows = 1,
                                   .cols = kCols,
                                   .settings = &settings,
                                   .tokens = &token,
                                   .errors = &error,
                                   .extras = &extras,
                                   .words = words.data(),
                                   .logprobs = &logprobs,
                                   .tops = tops.data(),
                                   .most_top = kTop});
  stream.queue.RunAll();
  EXPECT_GE(token, 0);
}

TEST_F(Races, OfAdaptersWithoutABarrierAreFound) {
  EXPECT_EQ(CountReports(RunAddLora), 0);
  for (const char* kernel : {"lora_shrink", "lora_expand"}) {
    emulator::LeaveOutBarrier(kernel);
    EXPECT_GT(CountReports(RunAddLora), 0) << kernel;
    EXPECT_TRUE(emulator::HasLeftOutBarrier()) << kernel;
  }
}

// Leaves out, one at a time, the barriers of a draw without which it reads numbers too early, but
// never outside its memory. They follow each list, the sums of blocks, the weights of one block,
// and each list that is undone. Others are in the row's statistics.
TEST_F(Races, OfADrawWithoutABarrierAreFound) {
  EXPECT_EQ(CountReports(RunDraw, /*seeds=*/1), 0);
  for (const int number : {0, 1, 8, 10, 12, 13, 14, 15}) {
    emulator::LeaveOutBarrier("sample_rows", number);
    EXPECT_GT(CountReports(RunDraw, /*seeds=*/1), 0) << "barrier " << number;
    EXPECT_TRUE(emulator::HasLeftOutBarrier()) << "barrier " << number;
  }
}

class RacesOfKernels : public Races, public testing::WithParamInterface<std::string> {};

// Returns all parts except "library" (the vendor's library), which has no kernels here.
std::vector<std::string> PartsOfKernels() {
  std::vector<std::string> names;
  for (const checks::CheckPart& part : selftest::PartsOfKernels()) {
    if (part.name != "library") names.emplace_back(part.name);
  }
  return names;
}

TEST_P(RacesOfKernels, AreNone) {
  auto device = checks::DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  const auto run = [&] {
    checks::CheckRun checks(*device, {},
                            RunsAll() ? checks::CheckExtent::kQuick : checks::CheckExtent::kSome);
    for (const checks::CheckPart& part : selftest::PartsOfKernels()) {
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
