// The parts of `sluice selftest`: kernel checks (kernels/cuda/checks), and checks of the layers
// below and above the kernels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/cuda/checks/check_run.h"

namespace sluice::selftest {

// A small model, which is run in every format.
struct DemoModel {
  std::filesystem::path folder;
  std::vector<std::vector<int32_t>> prompts;  // prompts as token ids; empty: there is no model
  std::string missing;                        // why there is no model
};

// Returns only the kernel checks: checks::KernelCheckParts, and the check of drawn tokens, which
// are compared with the sampler's.
std::vector<checks::CheckPart> PartsOfKernels();

// Returns all parts in dependency order: later parts build on earlier ones. The last one reads
// `model` when it runs; `model` must outlive the parts.
std::vector<checks::CheckPart> CheckParts(const DemoModel& model);

void CheckMemory(checks::CheckRun& run);
void CheckDraws(checks::CheckRun& run);
void CheckDrawExtras(checks::CheckRun& run);  // part of CheckDraws
void CheckModels(checks::CheckRun& run, const DemoModel& model);

}  // namespace sluice::selftest
