#include "options/rows.h"

namespace sluice::options {

void AddParallelRows(std::vector<Option>& table) {
  Rows rows(table, "Several devices", kEngineCommands | kInspect);
  rows.Integer(
      "tensor-parallel-size", "1",
      "Ranks that share each layer (tensor parallelism), each with a GPU of its own. A CPU "
      "has one for each NUMA node at most, unless --tensor-parallel-mode is exact. Answers "
      "do not depend on it (on GPUs with --batch-invariant).",
      {.range = {1, 65536}, .aliases = "-tp", .trtllm = "--tp_size"});
  rows.Integer(
      "pipeline-parallel-size", "1",
      "Stages that divide the layers (pipeline parallelism), each of so many GPUs as share "
      "a layer. A CPU has one stage, unless --tensor-parallel-mode is exact. Answers do not "
      "depend on it.",
      {.range = {1, 65536}, .aliases = "-pp", .trtllm = "--pp_size"});
  rows.Choice("tensor-parallel-mode", "auto", "auto|exact",
              "auto: as many ranks as a CPU is faster with; exact: as many as "
              "--tensor-parallel-size and --pipeline-parallel-size say.",
              {.commands = kEngineCommands});
  rows.Flag("disable-custom-all-reduce",
            "GPUs of --tensor-parallel-size exchange by NCCL alone, also where they address each "
            "other's memory; their steps are then not recorded as CUDA graphs.",
            {.commands = kEngineCommands, .needs = "device=cuda|hip|emulated"});
  rows.Integer("data-parallel-size", "1",
               "Engines behind one front door (data parallelism), at most 64: they share the "
               "weights and divide threads and memory, each with scheduler and KV cache of its "
               "own. Answers do not depend on it.",
               {.range = {1, 65536}, .aliases = "-dp"});
  rows.Integer("data-parallel-size-local", "",
               "Of the engines of --data-parallel-size, how many this server has: all of them, or "
               "with --data-parallel-hybrid-lb a part.",
               {.commands = kEngineArguments, .range = {1, 65536}, .aliases = "-dpl"});
  rows.Integer("data-parallel-rank", "",
               "This server is one engine of --data-parallel-size, the one with this number in "
               "metrics and messages; the others are servers of their own, behind any balancer.",
               {.commands = kServe, .range = {0, 65535}, .aliases = "-dpn"});
  rows.Integer("data-parallel-start-rank", "",
               "With --data-parallel-hybrid-lb: the number of the first engine of this server.",
               {.commands = kServe, .range = {0, 65535}, .aliases = "-dpr"});
  rows.Flag("data-parallel-hybrid-lb",
            "This server has --data-parallel-size-local engines of --data-parallel-size; those on "
            "other machines are servers of their own, behind any balancer.",
            {.commands = kServe, .aliases = "-dph"});
  rows.Flag("data-parallel-external-lb", "What --data-parallel-rank says, which it requires.",
            {.commands = kServe, .aliases = "-dpe"});
  rows.Flag("program",
            "List the operators that a CPU computes, in their order, with what each reads and "
            "writes, its shape, the bytes of its weights and its floating-point operations.",
            {.commands = kInspect});
  rows.Text("device-kind", "",
            "Accelerator on which a decoding step is worked out, part by part: H100, H200, B200, "
            "GB200, GB10, MI300X, MI355X, L40S, RTX-PRO-6000.",
            {.commands = kInspect});
  rows.Integer("step-sequences", "64", "Sequences of that step, over all engines.",
               {.commands = kInspect, .range = {1, 1e6}});
  rows.Integer("step-context", "1024", "Tokens that each of its sequences has.",
               {.commands = kInspect, .range = {1, 1e8}});
  rows.Number("link-bandwidth", "",
              "What a device receives from others, in GB/s. By default that of the accelerator's "
              "links within a machine.",
              {.commands = kInspect, .range = {1e-3, 1e6}});
  rows.Number("link-latency", "10",
              "Microseconds that an exchange between ranks takes beside its bytes.",
              {.commands = kInspect, .range = {0, 1e6}});
}

}  // namespace sluice::options
