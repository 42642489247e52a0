// The parts of `sluice selftest`: the checks of the kernels (kernels/cuda/checks), and those of
// what stands below and above them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/cuda/checks/check_run.h"

namespace sluice::selftest {

// The model that is run in every format.
struct DemoModel {
  std::filesystem::path folder;
  std::vector<std::vector<int32_t>> prompts;  // token ids; empty: there is no model
  std::string missing;                        // why
};

// The parts of kernels alone: checks::KernelCheckParts, and drawn tokens, which are compared with
// the sampler's.
std::vector<checks::CheckPart> PartsOfKernels();

// In the order in which they build on one another. The last one reads `model`, which outlives them,
// when it runs.
std::vector<checks::CheckPart> CheckParts(const DemoModel& model);

void CheckMemory(checks::CheckRun& run);
void CheckDraws(checks::CheckRun& run);
void CheckDrawExtras(checks::CheckRun& run);  // of CheckDraws
void CheckModels(checks::CheckRun& run, const DemoModel& model);

}  // namespace sluice::selftest
