// Compares every operator that computes numbers with a plain loop, for every instruction set of the
// CPU; and lists the operators that only tests of whole models run.
#include <set>
#include <string>

#include "models/program/op_check_testing.h"

namespace sluice::op_checks {
namespace {

using kernels::AvailableIsas;
using kernels::IsaTestName;

struct OpCheck {
  std::vector<const char*> operators;
  void (*run)(OpBench& bench);
};

const OpCheck kOpChecks[] = {
    {{program::Norm::kName}, CheckNorm},
    {{program::LayerNorm::kName}, CheckLayerNorm},
    {{program::NormRows::kName}, CheckNormRows},
    {{program::Scale::kName, program::Add::kName, program::Mix::kName}, CheckSums},
    {{program::CopyColumns::kName, program::KeepRows::kName}, CheckCopies},
    {{program::GateMul::kName}, CheckGates},
    {{program::GateMul::kName}, CheckXielu},
    {{program::GateAttended::kName}, CheckGateAttended},
    {{program::GateAttended::kName}, CheckSoftplusGates},
    {{program::LimitRows::kName, program::NormHeads::kName}, CheckHeads},
    {{program::CopyHeads::kName}, CheckCopyHeads},
    {{program::NormTo::kName}, CheckNormTo},
    {{program::FinishLogits::kName}, CheckResults},
    {{program::RopeTable::kName}, CheckRopeTable},
    {{program::Parts::kName}, CheckParts},
    {{program::Regroup::kName, program::MergePatches::kName, program::Standardize::kName,
      program::Clamp::kName},
     CheckPatches},
    {{program::Convolve::kName}, CheckConvolve},
    {{program::UpdateState::kName}, CheckUpdateState},
    {{program::GateStates::kName}, CheckGateStates},
};

// Operators that only tests of whole models run (golden, promise, ranks, adapters): they pass their
// operands to a single kernel, which has its own check, or they need ranks.
const char* const kCheckedByModels[] = {
    "SkipUnless", "Embed", "AddEmbeddings", "Receive", "Send", "Progress", "Gather", "Project",
    "RopeAppend", "AppendReceived", "Attend", "LatentAppend", "ChoosePositions", "ChooseBlocks",
    "AbsorbQueries", "ExpandValues", "RotateHeads", "CompressKeys", "ListPositions",
    "ProjectGroups", "CollapseStreams", "ExpandStreams", "Route", "GateShared", "GroupExperts",
    "ProjectExperts", "CombineExperts", "CopyResults", "Score", "MeanTexts", "Classify",
    "TakeHidden", "JoinNorms", "HandRows",
    // Checked by tower_golden_test.cc.
    "PlaceImages", "AddImages", "TakePatches", "AddPositions", "StoreImage",
    // Operators of devices, checked by kernels/cuda/checks and device_golden_test.cc.
    "MixTable", "Convert"};

class OpCheckTest : public kernels::KernelTest {};

INSTANTIATE_KERNEL_TEST(OpCheckTest);

TEST_P(OpCheckTest, OperatorsComputeWhatALoopComputes) {
  uint32_t seed = 1;
  for (const OpCheck& check : kOpChecks) {
    SCOPED_TRACE(check.operators.front());
    OpBench bench(seed++);
    check.run(bench);
  }
}

template <size_t... kIndices>
std::set<std::string> AllNames(std::index_sequence<kIndices...>) {
  return {std::variant_alternative_t<kIndices, Op>::kName...};
}

TEST(OpTableTest, EveryOperatorIsChecked) {
  std::set<std::string> checked(std::begin(kCheckedByModels), std::end(kCheckedByModels));
  for (const OpCheck& check : kOpChecks)
    checked.insert(check.operators.begin(), check.operators.end());
  EXPECT_EQ(checked, AllNames(std::make_index_sequence<std::variant_size_v<Op>>()));
}

}  // namespace
}  // namespace sluice::op_checks
