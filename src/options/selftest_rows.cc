#include "options/rows.h"

namespace sluice::options {

void AddSelftestRows(std::vector<Option>& table) {
  Rows rows(table, "Checks of a device", kSelftest | kKernelBench);
  rows.Choice("checked-device", "cuda", "cuda|hip|emulated",
              "Device to check or measure: the first CUDA or HIP device, or the emulator of the "
              "CUDA kernels on the CPU (slow; cannot be measured).",
              {.flag = "device"});
  rows.List("part", "", "Run only these parts; --list names them.", {.aliases = "--parts"});
  rows.Flag("list-parts", "List the parts and exit.", {.flag = "list"});
  rows.Text("report-json", "", "Write all results to this file.",
            {.flag = "json", .value = ValueKind::kFile});
  rows.Flag(
      "small-shapes",
      "Omit the shapes of large models, so that runs under compute-sanitizer take only minutes.",
      {.commands = kSelftest});
  rows.Text("checked-model", "",
            "Folder of a model with a file heldout.jsonl, for the part \"models\", which runs it "
            "in all formats; default: the bundled model.",
            {.commands = kSelftest, .flag = "model", .value = ValueKind::kFolder});
}

}  // namespace sluice::options
