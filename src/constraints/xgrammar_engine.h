// Implements the interface of constraint.h with xgrammar (docs/dependencies.md).
#pragma once

#include <memory>

#include "base/work_budget.h"
#include "constraints/constraint.h"
#include "constraints/vocabulary.h"

namespace sluice {

struct ConstraintLimits {
  // Limit for compiling one constraint; the bytes include the result.
  WorkLimits compile{.cpu_seconds = 2.0, .bytes = int64_t{256} << 20};
  // Limit for one sequence in one step.
  WorkLimits step{.cpu_seconds = 0.25, .bytes = int64_t{64} << 20};
};

// Sorts the vocabulary, which takes about 0.2 s for 128k tokens.
std::unique_ptr<ConstraintEngine> MakeXgrammarEngine(const Vocabulary& vocabulary,
                                                     const ConstraintLimits& limits = {});

}  // namespace sluice
