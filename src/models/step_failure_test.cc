// Tests that a step which runs out of memory does not harm the next one.
#include <new>
#include <numeric>

#include "base/work_budget.h"
#include "models/model_testing.h"

namespace sluice {
namespace {

TEST(StepFailureTest, AStepThatThrowsIsOverAndTheNextOneRuns) {
  // This model copies the tokens of each step. The copy is one of the allocations that fail in this
  // test.
  testing::Runner runner(testing::DataFolder("tiny-muse-glimmer"),
                         testing::SmallOptions(ElementType::kF32, ElementType::kF32), 1);
  std::vector<int32_t> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 5);
  const testing::LogitRows expected = runner.RunAlone(tokens, tokens.size());
  const auto copy_bytes = static_cast<int64_t>(tokens.size() * sizeof(int32_t));
  testing::LogitRows logits;
  int num_failed = 0;
  for (int64_t bytes = copy_bytes; logits.empty(); bytes += copy_bytes / 2) {
    try {
      const WorkBudget budget({.cpu_seconds = 60, .bytes = bytes});
      logits = runner.RunAlone(tokens, tokens.size());
    } catch (const std::bad_alloc&) {
      ++num_failed;
    }
  }
  EXPECT_GT(num_failed, 10);
  EXPECT_EQ(logits, expected);
}

}  // namespace
}  // namespace sluice
