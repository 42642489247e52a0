#include "selftest/check_parts.h"

#include <utility>

namespace sluice::selftest {

std::vector<checks::CheckPart> PartsOfKernels() {
  std::vector<checks::CheckPart> parts;
  for (const checks::CheckPart& part : checks::KernelCheckParts()) {
    parts.push_back(part);
    if (part.name == "experts") parts.push_back({"draws", "tokens drawn from logits", CheckDraws});
  }
  return parts;
}

std::vector<checks::CheckPart> CheckParts(const DemoModel& model) {
  std::vector<checks::CheckPart> parts;
  for (checks::CheckPart& part : PartsOfKernels()) {
    parts.push_back(std::move(part));
    if (parts.back().name == "instructions")
      parts.push_back({"memory", "copies, fills, events, page-locked memory", CheckMemory});
  }
  parts.push_back({"models", "the demo model in every format against the CPU",
                   [&model](checks::CheckRun& run) { CheckModels(run, model); }});
  return parts;
}

}  // namespace sluice::selftest
