#include "options/rows.h"

namespace sluice::options {
namespace {

constexpr std::string_view kGroup = "Compilers and kernels";

Option Common(std::string_view no_effect) {
  return {.group = kGroup, .commands = kEngineArguments, .no_effect = no_effect};
}

std::vector<Option> GraphRows() {
  return RowsLike(
      Common("nothing is compiled or captured at run time; the kernels are fused already"),
      {
          {"compilation-config", Type::kJson,
           "vLLM's compiler settings: JSON, one number for the mode, or --compilation-config.key "
           "value.",
           "", "", "-cc"},
          {"optimization-level", Type::kString, "vLLM's -O0 to -O3.", "", "0|1|2|3"},
          {"performance-mode", Type::kString, "What vLLM tunes for.", "",
           "balanced|interactivity|throughput"},
          {"enforce-eager", Type::kFlag, "No compiler, no CUDA graphs."},
          {"cudagraph-capture-sizes", Type::kStrings, "Batch sizes of CUDA graphs."},
          {"max-cudagraph-capture-size", Type::kInteger, "Largest batch of a CUDA graph."},
          {"cudagraph-metrics", Type::kFlag, "Count CUDA graphs."},
          {"jit-monitor-mode", Type::kString, "What a late compilation does.", "", "error|warn"},
          {"jit-monitor-verbose", Type::kFlag, "Tell of each."},
      });
}

std::vector<Option> KernelRows() {
  return RowsLike(
      Common("kernels are chosen for this machine at start; --cpu-isa forces a set"),
      {
          {"attention-backend", Type::kString, "vLLM's attention library."},
          {"attention-config", Type::kJson, "Its settings.", "", "", "-ac"},
          {"moe-backend", Type::kString, "vLLM's library for experts."},
          {"linear-backend", Type::kString, "vLLM's library for products."},
          {"sparse-indexer-topk-backend", Type::kString, "vLLM's library for top-k."},
          {"kernel-config", Type::kJson, "vLLM's choice of kernels."},
          {"ir-op-priority", Type::kJson, "Order of its kernels."},
          {"enable-flashinfer-autotune", Type::kFlag, "Measure kernels at start."},
          {"disable-cascade-attn", Type::kFlag, "No shared-prefix attention."},
          {"model-impl", Type::kString, "Whose model code.", "",
           "auto|vllm|transformers|terratorch"},
          {"use-fp64-gumbel", Type::kFlag, "Draw from noise in float64."},
          {"additional-config", Type::kJson, "Settings of other platforms."},
          {"enable-cumem-allocator", Type::kFlag, "CUDA's virtual memory."},
          {"enable-nccl-comm-suspend", Type::kFlag, "Give NCCL's memory back."},
          {"enable-layerwise-nvtx-tracing", Type::kFlag, "Marks for NVIDIA's profiler."},
          {"profiler-config", Type::kJson, "PyTorch's profiler."},
      });
}

std::vector<Option> OtherModelRows() {
  return RowsLike(
      Common("no model that is served here has such layers"),
      {
          {"mamba-backend", Type::kString, "Kernels of state-space layers."},
          {"mamba-ssu-algorithm", Type::kString, "Their update.", "",
           "auto|horizontal|simple|vertical"},
          {"enable-mamba-cache-stochastic-rounding", Type::kFlag, "Rounding of their state."},
          {"mamba-cache-philox-rounds", Type::kInteger, "Its random numbers."},
          {"mamba-cache-dtype", Type::kString, "Numbers of their state.", "",
           "auto|bfloat16|float16|float32"},
          {"mamba-ssm-cache-dtype", Type::kString, "Numbers of their state.", "",
           "auto|bfloat16|float16|float32"},
          {"mamba-block-size", Type::kInteger, "Tokens between two states."},
          {"mamba-cache-mode", Type::kString, "Which states are kept.", "", "align|none|all"},
          {"enable-mamba-shared-prefix-checkpoint", Type::kFlag, "Share states."},
          {"replayssm-buffer-len", Type::kInteger, "Tokens that are computed again."},
          {"use-replayssm", Type::kFlag, "Compute states again."},
          {"gdn-prefill-backend", Type::kString, "Kernels of gated delta nets."},
          {"kda-prefill-backend", Type::kString, "Kernels of Kimi's linear attention."},
          {"kda-decode-backend", Type::kString, "Kernels of Kimi's linear attention."},
          {"engram-config", Type::kJson, "Memory layers."},
          {"diffusion-config", Type::kJson, "Diffusion models.", "", "", "-dc"},
      });
}

}  // namespace

std::vector<Option> CompilerRows() {
  std::vector<Option> rows = GraphRows();
  for (const auto& part : {KernelRows(), OtherModelRows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace sluice::options
