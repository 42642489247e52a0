#include "options/rows.h"

namespace sluice::options {

std::vector<Option> EngineRows() {
  constexpr std::string_view kMemory = "Cache and memory";
  constexpr std::string_view kScheduling = "Scheduling";
  constexpr std::string_view kMachine = "Machine";
  return {
      {.name = "gpu-memory-utilization",
       .type = Type::kNumber,
       .group = kMemory,
       .commands = kEngineCommands,
       .help =
           "Share of the memory that this process may use (limits of its cgroup count) that "
           "weights, workspace and "
           "cache together may take; default on a CPU: the cache takes a quarter of what is free. "
           "On a device: of all its memory.",
       .range = {0.01, 1},
       .aliases = "--device-memory-utilization",
       .trtllm = "--kv_cache_free_gpu_memory_fraction|--free_gpu_memory_fraction"},
      {.name = "kv-cache-memory-bytes",
       .type = Type::kSize,
       .group = kMemory,
       .commands = kEngineCommands,
       .help = "Size of the KV cache, whatever --gpu-memory-utilization says; takes 4G (2^32) and "
               "16GiB.",
       .range = {1, 1e15},
       .environment = "VLLM_CPU_KVCACHE_SPACE"},
      {.name = "num-gpu-blocks-override",
       .type = Type::kInteger,
       .group = kMemory,
       .commands = kEngineCommands,
       .help = "Number of cache blocks, whatever the memory options say.",
       .range = {1, 1e12}},
      {.name = "block-size",
       .type = Type::kInteger,
       .default_value = "16",
       .group = kMemory,
       .commands = kEngineCommands,
       .help = "Tokens in a block of the KV cache.",
       .range = {1, 1024}},
      {.name = "kv-cache-dtype",
       .type = Type::kChoice,
       .default_value = "auto",
       .group = kMemory,
       .commands = kEngineCommands,
       .help = "Numbers in the KV cache; auto: bfloat16, float32 with --dtype float32, and fp8 "
               "where the checkpoint says so; fp8 is fp8_e4m3 with the checkpoint's scales.",
       .choices = "auto|bfloat16|float32|fp8|fp8_e4m3|float16|fp8_e5m2|fp8_inc|fp8_ds_mla|"
                  "fp8_per_token_head|int4_per_token_head|int8_per_token_head|nvfp4|nvfp4_4over6|"
                  "nvfp4_ds_mla|turboquant_3bit_nc|turboquant_4bit_nc|turboquant_k3v4_nc|"
                  "turboquant_k8v4|ultraquant_4bit",
       .words = "auto|bfloat16|float32|fp8|fp8_e4m3",
       .refuses = "the cache holds bfloat16, float32 or fp8_e4m3 here; choose one of them"},
      {.name = "enable-prefix-caching",
       .type = Type::kFlag,
       .default_value = "true",
       .group = kMemory,
       .commands = kEngineCommands,
       .help = "Keep the cache of finished prompts and use it for prompts that start alike."},
      {.name = "max-num-seqs",
       .type = Type::kInteger,
       .default_value = "256",
       .group = kScheduling,
       .commands = kEngineCommands,
       .help =
           "Most sequences in one step. Default on a device of 70 GiB or more (not A100): 1024.",
       .range = {1, 65536},
       .trtllm = "--max_batch_size"},
      {.name = "max-num-batched-tokens",
       .type = Type::kInteger,
       .default_value = "2048",
       .group = kScheduling,
       .commands = kEngineCommands,
       .help =
           "Most tokens in one step; a longer prompt is computed in chunks. Default on a device of "
           "70 GiB or more (not A100): 8192, of 160 GiB or more: 16384.",
       .range = {1, 1e7},
       .trtllm = "--max_num_tokens"},
      {.name = "enable-chunked-prefill",
       .type = Type::kFlag,
       .default_value = "true",
       .group = kScheduling,
       .commands = kEngineCommands,
       .help = "Let a step compute a part of a prompt; without it a prompt must fit "
               "--max-num-batched-tokens."},
      {.name = "long-prefill-token-threshold",
       .type = Type::kInteger,
       .default_value = "0",
       .group = kScheduling,
       .commands = kEngineCommands,
       .help = "Most prompt tokens of one request in one step; 0: no limit but the step's own.",
       .range = {0, 1e7}},
      {.name = "scheduling-policy",
       .type = Type::kChoice,
       .default_value = "fcfs",
       .group = kScheduling,
       .commands = kEngineCommands,
       .help = "fcfs: first come, first served; priority: requests with a smaller \"priority\" "
               "first, with ageing.",
       .choices = "fcfs|priority"},
      {.name = "device",
       .type = Type::kChoice,
       .default_value = "auto",
       .group = kMachine,
       .commands = kEngineCommands,
       .help = "What computes. auto: the first CUDA device where this program was built with CUDA "
               "and the machine has one, else the CPU. emulated: the CUDA kernels on the CPU, for "
               "developers; slow.",
       .choices = "auto|cpu|cuda|emulated"},
      {.name = "batch-invariant",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kMachine,
       .commands = kEngineCommands,
       .help =
           "The same request gives the same tokens whatever else is computed with it, on a CUDA "
           "device too: large steps then use the program's own matrix products instead of a "
           "library's. On the CPU it is always so.",
       .environment = "VLLM_BATCH_INVARIANT"},
      {.name = "threads",
       .type = Type::kInteger,
       .default_value = "0",
       .group = kMachine,
       .commands = kEngineCommands | kDoctor | kQuantize | kDiff,
       .help = "Threads that compute; 0: one for each core of this process's cgroup. Answers do "
               "not depend on it.",
       .range = {0, 4096}},
      {.name = "cpu-isa",
       .type = Type::kChoice,
       .default_value = "auto",
       .group = kMachine,
       .commands = kEngineCommands | kDoctor,
       .help = "Instruction set of the kernels; auto: the best this machine has (`sluice doctor` "
               "lists them); one that "
               "the machine lacks is refused.",
       .choices = "auto|reference|avx2|avx512|avx512_bf16|amx"},
  };
}

}  // namespace sluice::options
