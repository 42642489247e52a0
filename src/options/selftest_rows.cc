#include "options/rows.h"

namespace sluice::options {

std::vector<Option> SelftestRows() {
  constexpr std::string_view kGroup = "Checks of a device";
  constexpr uint32_t kBoth = kSelftest | kKernelBench;
  return {
      {.name = "checked-device",
       .type = Type::kChoice,
       .default_value = "cuda",
       .group = kGroup,
       .commands = kBoth,
       .help = "What is checked or measured: the first CUDA device, or the CUDA kernels on the CPU "
               "(checks alone; slow).",
       .flag = "device",
       .choices = "cuda|emulated"},
      {.name = "part",
       .type = Type::kStrings,
       .group = kGroup,
       .commands = kBoth,
       .help = "Run these parts alone; --list names them.",
       .aliases = "--parts"},
      {.name = "list-parts",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .commands = kBoth,
       .help = "Name the parts and run nothing.",
       .flag = "list"},
      {.name = "report-json",
       .group = kGroup,
       .commands = kBoth,
       .help = "Write all rows to this file.",
       .flag = "json"},
      {.name = "checked-model",
       .group = kGroup,
       .commands = kSelftest,
       .help =
           "Folder of the model that the part models runs in all formats, with a heldout.jsonl; "
           "default: the bundled one.",
       .flag = "model"},
  };
}

}  // namespace sluice::options
