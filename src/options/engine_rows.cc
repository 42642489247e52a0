#include "options/rows.h"

namespace sluice::options {
namespace {

void AddMemoryRows(std::vector<Option>& table) {
  Rows rows(table, "Cache and memory", kEngineCommands);
  rows.Number("gpu-memory-utilization", "",
              "On a CPU: share of the available memory (within the cgroup's limits) for weights, "
              "workspace and cache in total; by default, the cache takes a quarter of the free "
              "memory. On a device: share of its total memory.",
              {.range = {0.01, 1},
               .aliases = "--device-memory-utilization",
               .trtllm = "--kv_cache_free_gpu_memory_fraction|--free_gpu_memory_fraction"});
  rows.Size("kv-cache-memory-bytes", "",
            "Size of the KV cache; overrides --gpu-memory-utilization. 4G is 2^32 bytes.",
            {.range = {1, 1e15}, .environment = "VLLM_CPU_KVCACHE_SPACE"});
  rows.Integer("num-gpu-blocks-override", "",
               "Number of cache blocks; overrides the memory options.", {.range = {1, 1e12}});
  rows.Size("state-cache-memory", "",
            "Part of the KV cache's memory that may be used for snapshots of recurrent states, for "
            "prefix caching; default: up to a quarter.",
            {.range = {0, 1e15}});
  rows.Integer("mamba-block-size", "1024",
               "Number of prompt tokens between two snapshots of recurrent states; 0: snapshots "
               "only where prompts end, branch or continue.",
               {.range = {0, 1e9}, .aliases = "--state-snapshot-interval"});
  rows.Integer("block-size", "16", "Number of tokens in a block of the KV cache.",
               {.range = {1, 1024}});
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
              "GiB of host memory, shared by all engines, for blocks evicted from the KV cache. "
              "Blocks are loaded back when a prompt begins with their tokens.",
              {.range = {0, 1e6}});
  rows.Choice("kv-offloading-backend", "native", "native|lmcache",
              "Program that stores evicted blocks: native is this program itself.",
              {.words = "native",
               .effect = Effect::kRefused,
               .reason = "LMCache is a separate program and not supported; omit the option"});
  rows.Text("kv-offloading-path", "",
            "Folder for files of blocks that do not fit in memory; they can be reused after a "
            "restart with the same model.",
            {.value = ValueKind::kFolder});
  rows.Size(
      "kv-offloading-disk-size", "32GiB",
      "Maximum total size of the files in --kv-offloading-path; the least recently used files are "
      "removed.",
      {.range = {1, 1e15}, .needs = "kv-offloading-path"});
  rows.Size("kv-offloading-write-rate", "256MiB",
            "Maximum number of bytes written to --kv-offloading-path per second; 0: no limit. "
            "Blocks that exceed the rate are dropped.",
            {.range = {0, 1e15}, .needs = "kv-offloading-path"});
  rows.Json("kv-events-config", "",
            "Publish the additions and removals of prefix cache blocks, for routers: JSON with "
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
            "--max-num-batched-tokens tokens.",
            {.default_value = "true"});
  rows.Integer("long-prefill-token-threshold", "0",
               "Maximum number of prompt tokens of one request in one step; 0: only "
               "--max-num-batched-tokens limits them.",
               {.range = {0, 1e7}});
  rows.Choice("scheduling-policy", "fair", "fcfs|priority|fair",
              "Order in which waiting requests are started. fcfs: first come, first served. "
              "priority: smaller \"priority\" values first; waiting makes a request more urgent "
              "(--priority-ageing-seconds). fair: each client (API key, else address) gets an "
              "equal share of the computed tokens; priorities only order a client's own requests. "
              "If cache blocks run out, the least urgent sequence is preempted.",
              {.vllm_default = "fcfs", .trtllm_default = "fcfs"});
  rows.Number("priority-ageing-seconds", "30",
              "Seconds of waiting that lower a request's \"priority\" value by 1, which makes it "
              "more urgent; 0: waiting has no effect.",
              {.vllm_default = "0",
               .trtllm_default = "0",
               .range = {0, 1e6},
               .needs = "scheduling-policy=priority|fair"});
  rows.Integer("priority-ageing-levels", "10",
               "Maximum amount by which waiting lowers a request's \"priority\" value. Requests "
               "that are more urgent by more than this amount always go first.",
               {.range = {0, 1e6}, .needs = "scheduling-policy=priority|fair"});
  rows.Flag("async-scheduling",
            "On one device: plan and submit the next step while a step is running; the device "
            "copies the sampled tokens to the next step. If an answer ends meanwhile, its surplus "
            "results are dropped. Requests whose logits depend on the previous token (penalties, "
            "constraints) take part only in every second step. No effect on a CPU or with several "
            "devices. Answers do not depend on this option.",
            {.needs = "device=cuda|hip|emulated"});
  rows.Integer("max-num-scheduled-tokens", "", "Maximum number of tokens in one step.",
               {.commands = kEngineArguments,
                .range = {1, 1e7},
                .effect = Effect::kMapped,
                .reason = "--max-num-batched-tokens, if that option is larger or not given"});
}

void AddGraphRows(std::vector<Option>& table) {
  Rows rows(table, "CUDA graphs", kEngineArguments);
  rows.Flag("cuda-graphs",
            "Capture and replay CUDA graphs for steps in which each sequence adds one token, on "
            "CUDA devices without pipeline stages. Graphs are captured before the server is ready, "
            "for each number of sequences in --cudagraph-capture-sizes; other steps are launched "
            "kernel by kernel. Default: on if sizes are given, with cudagraph_mode of "
            "--compilation-config, with cuda_graph_config of trtllm-serve's file, and under the "
            "names vllm and trtllm-serve; otherwise off, since no GPU has run graphs yet.",
            {.needs = "device=cuda|hip|emulated"});
  rows.List("cudagraph-capture-sizes", "",
            "Step sizes (numbers of sequences) to capture; sizes above --max-num-seqs are ignored. "
            "Default: 1, 2, 4, 8, then powers of two with two sizes between consecutive powers.",
            {.needs = "device=cuda|hip|emulated"});
  rows.Integer("max-cudagraph-capture-size", "",
               "Maximum step size (number of sequences) to capture; 0: no graphs. Default: 512.",
               {.range = {0, 65536}, .needs = "device=cuda|hip|emulated"});
  rows.List(
      "cuda-graph-sizes", "",
      "One number acts as --max-cudagraph-capture-size, several act as --cudagraph-capture-sizes.",
      {.retired = "before 0.32.0: now --max-cudagraph-capture-size and "
                  "--cudagraph-capture-sizes",
       .needs = "device=cuda|hip|emulated"});
  rows.Flag(
      "cudagraph-padding",
      "Pad steps to the next captured size; otherwise steps of other sizes are launched kernel by "
      "kernel.",
      {.default_value = "true", .trtllm_default = "false", .needs = "device=cuda|hip|emulated"});
  rows.Flag("enforce-eager", "Do not capture or replay CUDA graphs; overrides other options.");
  rows.Json("compilation-config", "",
            "vLLM's compiler settings: JSON, a number (the mode), or --compilation-config.key "
            "value. cudagraph_mode (any but NONE), cudagraph_capture_sizes and "
            "max_cudagraph_capture_size turn on --cuda-graphs; other keys have no effect.",
            {.aliases = "-cc"});
}

void AddSpeculationRows(std::vector<Option>& table) {
  Rows rows(table, "Speculative decoding", kEngineCommands);
  rows.Json("speculative-config", "",
            "Method by which draft tokens are proposed (docs/speculation.md). A step verifies them "
            "and may accept several; answers do not change. {\"method\": \"ngram\", "
            "\"num_speculative_tokens\": 4, \"prompt_lookup_min\": 2, \"prompt_lookup_max\": 5} "
            "proposes tokens that followed the same tokens earlier in the prompt or answer; suffix "
            "also searches past answers; draft_model uses a smaller model with the same vocabulary "
            "(key \"model\"); eagle3 uses an EAGLE-3 head (key \"model\"), which reads the model's "
            "hidden states; dflash uses a DFlash drafter, which drafts a block of tokens in one "
            "pass; mtp (deepseek_mtp, ...) uses the model's own multi-token prediction layers. "
            "With other methods, a message is logged and no tokens are proposed.",
            {.aliases = "-sc"});
  rows.Text("spec-method", "",
            "Method of --speculative-config: ngram, suffix, draft_model, eagle3, dflash or "
            "mtp.");
  rows.Text("spec-model", "",
            "Key \"model\" of --speculative-config: the model or head that proposes tokens.");
  rows.Integer("spec-tokens", "", "num_speculative_tokens of --speculative-config.",
               {.range = {1, 64}});
}

void AddMachineRows(std::vector<Option>& table) {
  Rows rows(table, "Machine", kEngineCommands);
  rows.Choice("device", "auto", "auto|cpu|cuda|hip|emulated",
              "Device that computes the model. auto: the first CUDA or HIP device, if this program "
              "was built for it, else the CPU. emulated: the CUDA kernels on the CPU, for "
              "development; slow. hip: AMD GPUs (gfx942, gfx950), if this program was built by "
              "make build-hip; tested only with an emulator (docs/hip.md).");
  rows.Flag("batch-invariant",
            "On a GPU, make a request's tokens independent of other requests in the batch: large "
            "steps use this program's own matrix products instead of a library's. On a CPU, this "
            "is always true.",
            {.environment = "VLLM_BATCH_INVARIANT"});
  rows.Flag("fast-accumulation",
            "On a CUDA device, let FP8 products accumulate in the tensor cores' own precision of "
            "about 13 bits, if this was measured to be faster; otherwise they accumulate in 32 "
            "bits. No effect on a CPU or an AMD GPU, with --batch-invariant, or without cuBLASLt.",
            {.vllm_default = "true", .trtllm_default = "true", .needs = "device=cuda|emulated"});
  rows.Integer("threads", "0",
               "Number of compute threads; 0: one for each core that the cgroup allows. Answers do "
               "not depend on this number.",
               {.commands = kEngineCommands | kDoctor | kQuantize | kDiff, .range = {0, 4096}});
  rows.Choice(
      "cpu-isa", "auto",
      "auto|reference|portable|avx2|avx2_vnni|avx512|avx512_vnni|avx512_bf16|amx|neon|"
      "neon_dotprod|neon_bf16",
      "Instruction set of the kernels; auto: the best one that this machine supports (`sluice "
      "doctor` lists them). An instruction set that it does not support is refused.",
      {.commands = kEngineCommands | kDoctor});
  rows.Choice("arithmetic", "native", "native|portable",
              "native: use the fastest instructions of this CPU. portable: answers are "
              "bit-identical on every CPU with AVX2 and on every aarch64 CPU, so that receipts can "
              "be verified on other machines; slower (docs/receipts.md).");
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
