#include "options/rows.h"

namespace sluice::options {
namespace {

void AddMemoryRows(std::vector<Option>& table) {
  Rows rows(table, "Cache and memory", kEngineCommands);
  rows.Number("gpu-memory-utilization", "",
              "Share of the available memory (within the limits of the cgroup) for weights, "
              "workspace and cache together; default on a CPU: the cache takes a quarter of the "
              "free memory. On a device: share of all its memory.",
              {.range = {0.01, 1},
               .aliases = "--device-memory-utilization",
               .trtllm = "--kv_cache_free_gpu_memory_fraction|--free_gpu_memory_fraction"});
  rows.Size("kv-cache-memory-bytes", "",
            "Size of the KV cache; overrides --gpu-memory-utilization. 4G is 2^32 bytes.",
            {.range = {1, 1e15}, .environment = "VLLM_CPU_KVCACHE_SPACE"});
  rows.Integer("num-gpu-blocks-override", "",
               "Number of cache blocks; overrides the memory options.", {.range = {1, 1e12}});
  rows.Size("state-cache-memory", "",
            "Part of the KV cache's memory that snapshots of recurrent layers' states may take, "
            "for prefix caching; default: up to a quarter.",
            {.range = {0, 1e15}});
  rows.Integer("mamba-block-size", "1024",
               "Tokens of a long prompt between two snapshots of recurrent layers' states; 0: "
               "snapshots only where prompts end, branch or continue.",
               {.range = {0, 1e9}, .aliases = "--state-snapshot-interval"});
  rows.Integer("block-size", "16", "Tokens in a block of the KV cache.", {.range = {1, 1024}});
  rows.Choice(
      "kv-cache-dtype", "auto",
      "auto|bfloat16|float32|fp8|fp8_e4m3|float16|fp8_e5m2|fp8_inc|fp8_ds_mla|fp8_per_token_head|"
      "int4_per_token_head|int8_per_token_head|nvfp4|nvfp4_4over6|nvfp4_ds_mla|turboquant_3bit_nc|"
      "turboquant_4bit_nc|turboquant_k3v4_nc|turboquant_k8v4|ultraquant_4bit",
      "Data type of the KV cache; auto: bfloat16, float32 with --dtype float32, or fp8 if the "
      "checkpoint specifies it; fp8 is fp8_e4m3 with the checkpoint's scales.",
      {.words = "auto|bfloat16|float32|fp8|fp8_e4m3",
       .effect = Effect::kRefused,
       .reason = "the cache holds bfloat16, float32 or fp8_e4m3; choose one of them"});
  rows.Flag("enable-prefix-caching",
            "Keep the KV cache of finished prompts and reuse it for prompts with the same prefix.",
            {.default_value = "true"});
  rows.Number("kv-offloading-size", "",
              "GiB of memory, for all engines together, for blocks evicted from the KV cache. They "
              "are loaded back when a prompt begins with them.",
              {.range = {0, 1e6}});
  rows.Choice(
      "kv-offloading-backend", "native", "native|lmcache",
      "Program that keeps these blocks: native is this program itself.",
      {.words = "native",
       .effect = Effect::kRefused,
       .reason =
           "LMCache is a separate program, which this program does not support; omit the option"});
  rows.Text("kv-offloading-path", "",
            "Folder for files of blocks that no longer fit in memory; after a restart, a server of "
            "the same model finds them.",
            {.value = ValueKind::kFolder});
  rows.Size("kv-offloading-disk-size", "32GiB",
            "Maximum size of all files of --kv-offloading-path; the least recently used files are "
            "removed.",
            {.range = {1, 1e15}, .needs = "kv-offloading-path"});
  rows.Size("kv-offloading-write-rate", "256MiB",
            "Maximum number of bytes written per second; 0: as fast as the disk. Blocks above this "
            "rate are dropped.",
            {.range = {0, 1e15}, .needs = "kv-offloading-path"});
  rows.Json("kv-events-config", "",
            "Publish which blocks the prefix cache adds and removes, for routers: JSON with "
            "enable_kv_cache_events, endpoint (tcp://*:5557), replay_endpoint, topic, hwm, "
            "buffer_steps, max_queue_size, publisher (zmq or null).",
            {.commands = kServe});
}

void AddSchedulingRows(std::vector<Option>& table) {
  Rows rows(table, "Scheduling", kEngineCommands);
  rows.Integer("max-num-seqs", "256",
               "Maximum number of sequences in one step. Default on a device of 70 GiB or more "
               "(not A100): 1024.",
               {.range = {1, 65536}, .trtllm = "--max_batch_size"});
  rows.Integer(
      "max-num-batched-tokens", "2048",
      "Maximum number of tokens in one step; a longer prompt is computed in chunks. Default on a "
      "device of 70 GiB or more (not A100): 8192, of 160 GiB or more: 16384.",
      {.range = {1, 1e7}, .trtllm = "--max_num_tokens"});
  rows.Flag("enable-chunked-prefill",
            "Split long prompts over several steps; otherwise a prompt may have at most "
            "--max-num-batched-tokens.",
            {.default_value = "true"});
  rows.Integer("long-prefill-token-threshold", "0",
               "Maximum number of prompt tokens of one request in one step; 0: only "
               "--max-num-batched-tokens limits them.",
               {.range = {0, 1e7}});
  rows.Choice(
      "scheduling-policy", "fair", "fcfs|priority|fair",
      "fcfs: first come, first served; priority: requests with a smaller \"priority\" first; "
      "waiting makes a request more urgent (--priority-ageing-seconds); fair: each client (API "
      "key, else address) gets an equal share of the computed tokens, and priorities count among "
      "its own requests. If cache blocks run out, the least urgent sequence is preempted.",
      {.vllm_default = "fcfs", .trtllm_default = "fcfs"});
  rows.Number("priority-ageing-seconds", "30",
              "Seconds of waiting that lower a request's \"priority\" value by 1, which makes it "
              "more urgent; 0: waiting has no effect.",
              {.vllm_default = "0",
               .trtllm_default = "0",
               .range = {0, 1e6},
               .needs = "scheduling-policy=priority|fair"});
  rows.Integer("priority-ageing-levels", "10",
               "Maximum number of levels of \"priority\" that a request gains by waiting. Requests "
               "that are more urgent by more levels always go first.",
               {.range = {0, 1e6}, .needs = "scheduling-policy=priority|fair"});
  rows.Flag(
      "async-scheduling",
      "On one device: plan and submit the next step while one runs; the device passes on the "
      "tokens that it has sampled. Results for an answer that has ended meanwhile are dropped. "
      "Requests whose logits depend on the previous token (penalties, constraints) take part in "
      "every second step. No effect on a CPU or with several devices. Answers do not depend on it.",
      {.needs = "device=cuda|hip|emulated"});
  rows.Integer("max-num-scheduled-tokens", "", "Most tokens in one step.",
               {.commands = kEngineArguments,
                .range = {1, 1e7},
                .effect = Effect::kMapped,
                .reason = "--max-num-batched-tokens, where that is larger or not given"});
}

void AddGraphRows(std::vector<Option>& table) {
  Rows rows(table, "CUDA graphs", kEngineArguments);
  rows.Flag("cuda-graphs",
            "On CUDA devices without pipeline stages: steps in which each sequence goes on by one "
            "token are recorded as CUDA graphs before the server is ready, for each number of "
            "sequences in --cudagraph-capture-sizes, and replayed; other steps are launched kernel "
            "by kernel. Also on where sizes are given, by cudagraph_mode of --compilation-config, "
            "by cuda_graph_config of trtllm-serve's file, and under the names vllm and "
            "trtllm-serve, whose default they are; else off, as no GPU has run it yet.",
            {.needs = "device=cuda|hip|emulated"});
  rows.List(
      "cudagraph-capture-sizes", "",
      "Numbers of sequences of the steps to capture; numbers above --max-num-seqs are ignored. "
      "Default: 1, 2, 4, 8, then powers of two with two sizes between each power and the next.",
      {.needs = "device=cuda|hip|emulated"});
  rows.Integer("max-cudagraph-capture-size", "",
               "Maximum number of sequences of the steps to capture; 0: none. Default: 512.",
               {.range = {0, 65536}, .needs = "device=cuda|hip|emulated"});
  rows.List(
      "cuda-graph-sizes", "",
      "One number acts as --max-cudagraph-capture-size, several act as --cudagraph-capture-sizes.",
      {.retired = "before 0.32.0: now --max-cudagraph-capture-size and "
                  "--cudagraph-capture-sizes",
       .needs = "device=cuda|hip|emulated"});
  rows.Flag(
      "cudagraph-padding",
      "Pad steps to the next captured number of sequences; otherwise steps of other sizes are "
      "launched kernel by kernel.",
      {.default_value = "true", .trtllm_default = "false", .needs = "device=cuda|hip|emulated"});
  rows.Flag("enforce-eager", "Do not capture or replay CUDA graphs; overrides other options.");
  rows.Json("compilation-config", "",
            "vLLM's compiler settings: JSON, one number for the mode, or --compilation-config.key "
            "value. cudagraph_mode (any but NONE), cudagraph_capture_sizes and "
            "max_cudagraph_capture_size act as --cuda-graphs does; the other keys have no effect.",
            {.aliases = "-cc"});
}

void AddSpeculationRows(std::vector<Option>& table) {
  Rows rows(table, "Speculative decoding", kEngineCommands);
  rows.Json(
      "speculative-config", "",
      "Speculative decoding: how tokens are proposed. A step verifies them and accepts several "
      "where they are right; answers do not change. {\"method\": \"ngram\", "
      "\"num_speculative_tokens\": 4, \"prompt_lookup_min\": 2, \"prompt_lookup_max\": "
      "5}: those that followed the same tokens before, in prompt or answer; method suffix: in "
      "past answers, too; method draft_model: what the smaller model of the key \"model\", of the "
      "same vocabulary, continues with; method eagle3: what the EAGLE-3 head of the key \"model\" "
      "continues the model's hidden states with; method dflash: the block of tokens that a DFlash "
      "drafter drafts at once; method mtp (deepseek_mtp, ...): what the layers "
      "of "
      "the model's own checkpoint do. Other methods are logged, and no tokens are proposed.",
      {.aliases = "-sc"});
  rows.Text("spec-method", "",
            "Method of --speculative-config: ngram, suffix, draft_model, eagle3, dflash or "
            "mtp.");
  rows.Text("spec-model", "", "Model of --speculative-config that proposes tokens.");
  rows.Integer("spec-tokens", "", "num_speculative_tokens of --speculative-config.",
               {.range = {1, 64}});
}

void AddMachineRows(std::vector<Option>& table) {
  Rows rows(table, "Machine", kEngineCommands);
  rows.Choice("device", "auto", "auto|cpu|cuda|hip|emulated",
              "Device that computes. auto: the first CUDA or HIP device, if this program was built "
              "for it, else the CPU. emulated: the CUDA kernels on the CPU, for development; slow. "
              "hip: AMD GPUs (gfx942, gfx950), if this program was built by make build-hip; "
              "compiled and emulated, never run on one (docs/hip.md).");
  rows.Flag("batch-invariant",
            "Make the tokens of a request independent of the rest of the batch on a GPU: "
            "large steps then use the program's own matrix products instead of a library's. Always "
            "true on a CPU.",
            {.environment = "VLLM_BATCH_INVARIANT"});
  rows.Flag(
      "fast-accumulation",
      "Let FP8 products on a CUDA device accumulate in the tensor cores' own precision of about 13 "
      "bits, if this was measured to be faster; otherwise they accumulate in 32 bits. No "
      "effect on a CPU or an AMD GPU, with --batch-invariant, or where cuBLASLt is not installed.",
      {.vllm_default = "true", .trtllm_default = "true", .needs = "device=cuda|emulated"});
  rows.Integer("threads", "0",
               "Number of threads that compute; 0: one for each core of the cgroup. Answers do not "
               "depend on it.",
               {.commands = kEngineCommands | kDoctor | kQuantize | kDiff, .range = {0, 4096}});
  rows.Choice("cpu-isa", "auto",
              "auto|reference|portable|avx2|avx2_vnni|avx512|avx512_vnni|avx512_bf16|amx|neon|"
              "neon_dotprod|neon_bf16",
              "Instruction set of the kernels; auto: the best that this machine supports (`sluice "
              "doctor` lists them). One that it does not support is refused.",
              {.commands = kEngineCommands | kDoctor});
  rows.Choice("arithmetic", "native", "native|portable",
              "portable: answers are bit-identical on every CPU with AVX2 and on every aarch64 "
              "CPU, so that receipts can be verified on other machines. Slower than native, which "
              "uses the fastest instructions of this CPU (docs/receipts.md).");
}

}  // namespace

void AddEngineRows(std::vector<Option>& table) {
  AddMemoryRows(table);
  AddSchedulingRows(table);
  AddGraphRows(table);
  AddSpeculationRows(table);
  AddMachineRows(table);
}

}  // namespace sluice::options
