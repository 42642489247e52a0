#include "options/rows.h"

namespace sluice::options {

void AddSelftestRows(std::vector<Option>& table) {
  Rows rows(table, "Checks of a device", kSelftest | kKernelBench);
  rows.Choice(
      "checked-device", "cuda", "cuda|hip|emulated",
      "Device to check or measure: the first CUDA or HIP device, or the CUDA kernels emulated "
      "on the CPU (only checks; slow).",
      {.flag = "device"});
  rows.List("part", "", "Run only these parts; --list names them.", {.aliases = "--parts"});
  rows.Flag("list-parts", "List the parts and exit.", {.flag = "list"});
  rows.Text("report-json", "", "Write all results to this file.",
            {.flag = "json", .value = ValueKind::kFile});
  rows.Flag("small-shapes",
            "Leave out the shapes of large models: what compute-sanitizer slows down by far then "
            "takes minutes.",
            {.commands = kSelftest});
  rows.Text("checked-model", "",
            "Folder of the model, with a heldout.jsonl, that the part models runs in all formats; "
            "default: the bundled one.",
            {.commands = kSelftest, .flag = "model", .value = ValueKind::kFolder});
}

}  // namespace sluice::options
