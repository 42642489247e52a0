// The engine's contract over thousands of random steps.
#include "engine/engine_random_testing.h"

namespace sluice {
namespace {

using testing::RandomEngine;

TEST_P(RandomEngine, KeepsTheContract) {
  Run();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomEngine, ::testing::Range(0u, 120u));
// Seeds with rare events, such as a token that is drawn although it is hardly probable.
INSTANTIATE_TEST_SUITE_P(RareSeeds, RandomEngine, ::testing::Values(4648u, 10076u));

}  // namespace
}  // namespace sluice
