// The engine's contract over thousands of random steps.
#include "engine/engine_random_testing.h"

namespace sluice {
namespace {

using testing::RandomEngine;

TEST_P(RandomEngine, KeepsTheContract) {
  Run();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomEngine, ::testing::Range(0u, 120u));

}  // namespace
}  // namespace sluice
