// The settings of an engine, resolved from options; fixed once it runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

struct EngineConfig {
  std::filesystem::path model_folder;
  std::filesystem::path generation_config_folder;  // of generation_config.json; "": model_folder

  // Numbers.
  std::string dtype =
      "auto";  // auto | bfloat16 | float32 (float16 runs as bfloat16, said in the log)
  // auto | bfloat16 | float32 | fp8 | fp8_e4m3; auto: fp8 where the checkpoint says so, else as
  // dtype
  std::string kv_cache_dtype = "auto";
  // auto | bf16 | checkpoint: what the inputs of quantized products are rounded to (model.h)
  std::string activation_format = "auto";
  bool dummy_weights = false;  // --load-format dummy
  uint64_t seed = 0;  // of dummy weights and of requests without a seed (0: random for the latter)

  // Limits.
  int block_size = 16;
  std::optional<int64_t> max_model_len;  // default: what the checkpoint allows and memory holds
  std::optional<int64_t> max_num_seqs;   // default 256
  std::optional<int64_t> max_num_batched_tokens;  // default 2048
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  bool priority_scheduling = false;
  int64_t long_prefill_token_threshold = 0;  // 0: off

  // Memory: the cache takes a quarter of the free memory by default; a fraction of the memory this
  // process may use where `memory_utilization` is given; exactly `kv_cache_bytes` where that is. On
  // a device weights, workspace and cache take 0.92 of its memory together, or
  // `memory_utilization`; with `utilization_of_rest` the cache takes 0.9, or that, of what weights
  // and workspace leave.
  std::optional<double> memory_utilization;
  bool utilization_of_rest = false;  // TensorRT-LLM's meaning; counts on a device
  std::optional<int64_t> kv_cache_bytes;
  std::optional<int64_t> num_blocks_override;  // each of all layers

  // Machine.
  // auto | cpu | cuda | emulated. auto: the first CUDA device where this program has the backend
  // and the machine has one, else the CPU.
  std::string device = "auto";
  bool batch_invariant = false;  // ModelOptions's; of a device, the CPU always is
  int num_threads = 0;           // 0: all cores of the process's cgroup
  std::string cpu_isa = "auto";

  double drain_seconds = 30;  // C9: running requests get this long to finish after BeginShutdown()
};

}  // namespace sluice
