#include "options/rows.h"

namespace sluice::options {

void AddParallelRows(std::vector<Option>& table) {
  Rows rows(table, "Several devices", kEngineCommands | kInspect);
  rows.Integer("tensor-parallel-size", "1",
               "Number of ranks that share each layer (tensor parallelism), each with its own GPU. "
               "On a CPU, there is at most one rank per NUMA node, unless --tensor-parallel-mode "
               "is exact. Answers do not depend on this number (on GPUs with --batch-invariant).",
               {.range = {1, 65536}, .aliases = "-tp", .trtllm = "--tp_size"});
  rows.Integer("pipeline-parallel-size", "1",
               "Number of stages that divide the layers (pipeline parallelism). Each stage uses "
               "--tensor-parallel-size GPUs. On a CPU, there is one stage, unless "
               "--tensor-parallel-mode is exact. Answers do not depend on this number.",
               {.range = {1, 65536}, .aliases = "-pp", .trtllm = "--pp_size"});
  rows.Choice("tensor-parallel-mode", "auto", "auto|exact",
              "Number of ranks on a CPU. auto: only as many as increase the speed; exact: as many "
              "as --tensor-parallel-size and --pipeline-parallel-size specify.",
              {.commands = kEngineCommands});
  rows.Flag("disable-custom-all-reduce",
            "Use NCCL for all exchanges between the GPUs of --tensor-parallel-size, even if the "
            "GPUs can access each other's memory. Steps are then not captured as CUDA graphs.",
            {.commands = kEngineCommands, .needs = "device=cuda|hip|emulated"});
  rows.Integer("data-parallel-size", "1",
               "Number of engines behind one server address (data parallelism), at most 64. The "
               "engines share the weights and divide threads and memory; each has its own "
               "scheduler and KV cache. Answers do not depend on this number.",
               {.range = {1, 65536}, .aliases = "-dp"});
  rows.Integer("data-parallel-size-local", "",
               "Number of engines of --data-parallel-size that this server runs: all of them, or a "
               "part with --data-parallel-hybrid-lb.",
               {.commands = kEngineArguments, .range = {1, 65536}, .aliases = "-dpl"});
  rows.Integer("data-parallel-rank", "",
               "Run only one engine of --data-parallel-size, with this number in metrics and "
               "messages; the other engines are separate servers behind a load balancer.",
               {.commands = kServe, .range = {0, 65535}, .aliases = "-dpn"});
  rows.Integer("data-parallel-start-rank", "",
               "With --data-parallel-hybrid-lb: the number of the first engine of this server.",
               {.commands = kServe, .range = {0, 65535}, .aliases = "-dpr"});
  rows.Flag("data-parallel-hybrid-lb",
            "Run --data-parallel-size-local engines of --data-parallel-size; the engines on other "
            "machines are separate servers behind a load balancer.",
            {.commands = kServe, .aliases = "-dph"});
  rows.Flag("data-parallel-external-lb", "Same effect as --data-parallel-rank, which is required.",
            {.commands = kServe, .aliases = "-dpe"});
  rows.Flag("program",
            "List the model's operators for a CPU, in order, with inputs, outputs, shape, bytes of "
            "weights and floating-point operations.",
            {.commands = kInspect});
  rows.Text("device-kind", "",
            "Accelerator for which the time of each part of a decode step is estimated: H100, "
            "H200, B200, GB200, GB10, MI300X, MI355X, L40S, RTX-PRO-6000.",
            {.commands = kInspect});
  rows.Integer("step-sequences", "64",
               "Number of sequences of the estimated step, over all engines.",
               {.commands = kInspect, .range = {1, 1e6}});
  rows.Integer("step-context", "1024", "Number of tokens of each sequence of the estimated step.",
               {.commands = kInspect, .range = {1, 1e8}});
  rows.Number("link-bandwidth", "",
              "Bandwidth in GB/s at which a device receives data from other devices; default: the "
              "bandwidth of the accelerator's links within a machine.",
              {.commands = kInspect, .range = {1e-3, 1e6}});
  rows.Number(
      "link-latency", "10",
      "Latency in microseconds of an exchange between ranks, in addition to the transfer time.",
      {.commands = kInspect, .range = {0, 1e6}});
}

}  // namespace sluice::options
