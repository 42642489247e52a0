#include "selftest/check_parts.h"

namespace sluice::selftest {

std::vector<checks::CheckPart> CheckParts(const DemoModel& model) {
  std::vector<checks::CheckPart> parts;
  for (const checks::CheckPart& part : checks::KernelCheckParts()) {
    parts.push_back(part);
    if (part.name == "instructions")
      parts.push_back({"memory", "copies, fills, events, page-locked memory", CheckMemory});
    if (part.name == "experts") parts.push_back({"draws", "tokens drawn from logits", CheckDraws});
  }
  parts.push_back({"models", "the demo model in every format against the CPU",
                   [&model](checks::CheckRun& run) { CheckModels(run, model); }});
  return parts;
}

}  // namespace sluice::selftest
