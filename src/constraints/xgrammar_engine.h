// xgrammar (docs/dependencies.md) behind the contract of constraint.h.
#pragma once

#include <memory>

#include "base/work_budget.h"
#include "constraints/constraint.h"
#include "constraints/vocabulary.h"

namespace sluice {

struct ConstraintLimits {
  // The limit of compiling one constraint; what it keeps counts into the bytes.
  WorkLimits compile{.cpu_seconds = 2.0, .bytes = int64_t{256} << 20};
  // The limit of one sequence in one step.
  WorkLimits step{.cpu_seconds = 0.25, .bytes = int64_t{64} << 20};
};

// Sorts the vocabulary, which takes some 0.2 s for 128k tokens.
std::unique_ptr<ConstraintEngine> MakeXgrammarEngine(const Vocabulary& vocabulary,
                                                     const ConstraintLimits& limits = {});

}  // namespace sluice
