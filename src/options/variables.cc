#include "options/variables.h"

#include <fmt/format.h>

#include "options/values.h"

namespace sluice::options {
namespace {

constexpr std::string_view kNoGpu = "devices are CPUs and NVIDIA GPUs";
constexpr std::string_view kDriver = "read by the CUDA driver, for --device cuda";
constexpr std::string_view kKernels =
    "kernels are chosen for this machine; --cpu-isa forces a set of the CPU's";
constexpr std::string_view kOneDevice = "there is one device and nothing to exchange";
constexpr std::string_view kNoPython = "there is no Python in this program";
constexpr std::string_view kNoDownload =
    "nothing is downloaded: models are folders or in the cache";
constexpr std::string_view kNoTelemetry = "nothing about you is ever sent to anybody";
constexpr std::string_view kTextOnly = "text alone is served";

// More specific names before those with a *.
constexpr Variable kVariables[] = {
    {"HF_HUB_CACHE", true, "folder in which model ids are looked up"},
    {"HUGGINGFACE_HUB_CACHE", true, "its older name"},
    {"HF_HOME", true, "its parent"},
    {"XDG_CACHE_HOME", true, "parent of huggingface/hub where none of those is set"},
    {"HF_TOKEN", false, kNoDownload},
    {"HUGGING_FACE_HUB_TOKEN", false, kNoDownload},
    {"HF_HUB_OFFLINE", false, "the program is always offline"},
    {"TRANSFORMERS_OFFLINE", false, "the program is always offline"},
    {"HF_*", false, kNoDownload},
    {"SAFETENSORS_FAST_GPU", false, "files are mapped and read in place"},
    {"CUDA_VISIBLE_DEVICES", true, kDriver},
    {"HIP_VISIBLE_DEVICES", false, kNoGpu},
    {"ROCR_VISIBLE_DEVICES", false, kNoGpu},
    {"NVIDIA_VISIBLE_DEVICES", true, kDriver},
    {"HSA_*", false, kNoGpu},
    {"AITER_*", false, kNoGpu},
    {"NCCL_*", false, kOneDevice},
    {"RCCL_*", false, kOneDevice},
    {"OMP_NUM_THREADS", false, "--threads sets the threads"},
    {"DO_NOT_TRACK", false, kNoTelemetry},
    {"TRTLLM_SERVER_DISABLE_GC", false, "there is no garbage collector"},
    {"TRTLLM_DISAGG_SERVER_DISABLE_GC", false, "there is no garbage collector"},
    {"TRTLLM_*", false, "it chooses kernels of TensorRT-LLM"},
    {"TLLM_*", false, "it chooses kernels of TensorRT-LLM"},

    {"VLLM_API_KEY", true, "--api-key"},
    {"VLLM_LOGGING_LEVEL", true, "--log-level"},
    {"VLLM_LOG_STATS_INTERVAL", true, "--log-stats-interval"},
    {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE", true, "--timeout-keep-alive"},
    {"VLLM_SERVER_DEV_MODE", true, "--dev-mode"},
    {"VLLM_SKIP_MODEL_NAME_VALIDATION", true, "--skip-model-name-validation"},
    {"VLLM_MAX_STOP_STRINGS", true, "--max-stop-strings"},
    {"VLLM_MAX_COMPLETION_PROMPTS", true, "--max-completion-prompts"},
    {"VLLM_MAX_N_SEQUENCES", true, "--max-n-sequences"},
    {"VLLM_MAX_NUM_BAD_WORDS", true, "--max-num-bad-words"},
    {"VLLM_CPU_KVCACHE_SPACE", true, "--kv-cache-memory-bytes, in GiB"},
    {"VLLM_BATCH_INVARIANT", true, "--batch-invariant"},
    {"VLLM_ALLOW_LONG_MAX_MODEL_LEN", false,
     "a model knows no positions beyond those of its config.json"},
    {"VLLM_ALLOW_RUNTIME_LORA_UPDATING", false, "adapters are not served"},
    {"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", false, "engine and server are one process"},
    {"VLLM_ENGINE_READY_TIMEOUT_S", false, "engine and server are one process"},
    {"VLLM_ENGINE_ITERATION_TIMEOUT_S", false, "engine and server are one process"},
    {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", false, "engine and server are one process"},
    {"VLLM_RPC_TIMEOUT", false, "engine and server are one process"},
    {"VLLM_RPC_*", false, "engine and server are one process"},
    {"VLLM_PORT", false, "engine and server are one process"},
    {"VLLM_HOST_IP", false, "engine and server are one process"},
    {"VLLM_ENABLE_V1_MULTIPROCESSING", false, "engine and server are one process"},
    {"VLLM_WORKER_MULTIPROC_METHOD", false, "engine and server are one process"},
    {"VLLM_USE_V1", false, "there is one engine"},
    {"VLLM_USE_V2_MODEL_RUNNER", false, "there is one engine"},
    {"VLLM_USE_RUST_FRONTEND", false, "there is one server"},
    {"VLLM_USE_RUST_BENCH", false, "there is one bench"},
    {"VLLM_ENABLE_RESPONSES_API_STORE", false, "/v1/responses is not served"},
    {"VLLM_CONFIGURE_LOGGING", false, "there is one log, in one format"},
    {"VLLM_LOGGING_*", false, "there is one log, in one format"},
    {"VLLM_TRACE_FUNCTION", false, kNoPython},
    {"VLLM_PLUGINS", false, kNoPython},
    {"VLLM_NO_USAGE_STATS", false, kNoTelemetry},
    {"VLLM_DO_NOT_TRACK", false, kNoTelemetry},
    {"VLLM_USAGE_*", false, kNoTelemetry},
    {"VLLM_NO_DEPRECATION_WARNING", false, "what is retired is always told"},
    {"VLLM_TARGET_DEVICE", false, "--device says what computes"},
    {"VLLM_USE_MODELSCOPE", false, kNoDownload},
    {"VLLM_CACHE_ROOT", false, "nothing is compiled, and nothing is cached on disk"},
    {"VLLM_ASSETS_CACHE", false, "nothing is compiled, and nothing is cached on disk"},
    {"VLLM_CONFIG_ROOT", false, "there are no settings but those you see"},
    {"VLLM_DISABLE_COMPILE_CACHE", false, "nothing is compiled, and nothing is cached on disk"},
    {"VLLM_USE_STANDALONE_COMPILE", false, "nothing is compiled, and nothing is cached on disk"},
    {"VLLM_USE_AOT_COMPILE", false, "nothing is compiled, and nothing is cached on disk"},
    {"VLLM_TORCH_PROFILER_*", false, "`perf` profiles this program"},
    {"VLLM_TORCH_*", false, kNoPython},
    {"VLLM_CPU_OMP_THREADS_BIND", false, "--threads sets the threads; each has a core"},
    {"VLLM_CPU_NUM_OF_RESERVED_CPU", false, "--threads sets the threads"},
    {"VLLM_CPU_*", false, kKernels},
    {"VLLM_ATTENTION_BACKEND", false,
     "now --attention-backend; kernels are chosen for this machine"},
    {"VLLM_USE_TRTLLM_ATTENTION", false,
     "now --attention-config; kernels are chosen for this machine"},
    {"VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB", false, kOneDevice},
    {"VLLM_FLASHINFER_*", false, kKernels},
    {"VLLM_USE_FLASHINFER_*", false, kKernels},
    {"VLLM_HAS_FLASHINFER_CUBIN", false, kKernels},
    {"VLLM_FLASH_ATTN_*", false, kKernels},
    {"VLLM_USE_TRITON_*", false, kKernels},
    {"VLLM_USE_DEEP_GEMM*", false, kKernels},
    {"VLLM_DEEP_GEMM_*", false, kKernels},
    {"VLLM_DEEPEP_*", false, kOneDevice},
    {"VLLM_ROCM_*", false, kNoGpu},
    {"VLLM_XLA_*", false, kNoGpu},
    {"VLLM_TPU_*", false, kNoGpu},
    {"VLLM_XPU_*", false, kNoGpu},
    {"VLLM_CUDA_*", false, kKernels},
    {"VLLM_CUDART_SO_PATH", false, "the CUDA runtime is part of the program"},
    {"VLLM_NCCL_*", false, kOneDevice},
    {"VLLM_MOE_*", false, kKernels},
    {"VLLM_FUSED_MOE_*", false, kKernels},
    {"VLLM_ENABLE_FUSED_MOE_*", false, kKernels},
    {"VLLM_USE_FUSED_MOE_*", false, kKernels},
    {"VLLM_MARLIN_*", false, kKernels},
    {"VLLM_MXFP4_*", false, kKernels},
    {"VLLM_NVFP4_*", false, kKernels},
    {"VLLM_USE_NVFP4_*", false, kKernels},
    {"VLLM_CUTLASS_*", false, kKernels},
    {"VLLM_MLA_*", false, kKernels},
    {"VLLM_KV_CACHE_LAYOUT", false, kKernels},
    {"VLLM_ALLREDUCE_*", false, kOneDevice},
    {"VLLM_USE_SYMM_MEM", false, kOneDevice},
    {"VLLM_ALL2ALL_BACKEND", false, kOneDevice},
    {"VLLM_SKIP_P2P_CHECK", false, kOneDevice},
    {"VLLM_DP_*", false, kOneDevice},
    {"VLLM_PP_*", false, kOneDevice},
    {"VLLM_RAY_*", false, kOneDevice},
    {"VLLM_USE_RAY_*", false, kOneDevice},
    {"VLLM_NIXL_*", false, "prompts and answers are computed by the same server"},
    {"VLLM_MOONCAKE_*", false, "prompts and answers are computed by the same server"},
    {"VLLM_IMAGE_*", false, kTextOnly},
    {"VLLM_AUDIO_*", false, kTextOnly},
    {"VLLM_MAX_AUDIO_*", false, kTextOnly},
    {"VLLM_VIDEO_*", false, kTextOnly},
    {"VLLM_MEDIA_*", false, kTextOnly},
    {"VLLM_MM_*", false, kTextOnly},
    {"VLLM_MULTIMODAL_*", false, kTextOnly},
    {"VLLM_LORA_*", false, "adapters are not served"},
    {"VLLM_PROCESS_NAME_PREFIX", false, "there is one process"},
    {"VLLM_LOG_*", false, "there is one log, in one format"},
    {"VLLM_DEBUG_*", false, kNoPython},
    {"VLLM_TEST_*", false, "it is for vLLM's own tests"},
    {"VLLM_CI_*", false, "it is for vLLM's own tests"},
    {"VLLM_TOOL_*", false, "tool calls are not served yet"},
    {"VLLM_XGRAMMAR_CACHE_MB", false, "structured output is not served yet"},
    {"VLLM_V1_*", false, "there is one engine"},
    {"VLLM_USE_*", false, kKernels},
    {"VLLM_DISABLE_*", false, kKernels},
    {"VLLM_ENABLE_*", false, kKernels},
};

bool Covers(const Variable& variable, std::string_view name) {
  if (variable.name.ends_with('*'))
    return name.starts_with(variable.name.substr(0, variable.name.size() - 1));
  return variable.name == name;
}

}  // namespace

std::span<const Variable> Variables() {
  return kVariables;
}

Result<std::vector<Note>> VariableNotes(const std::map<std::string, std::string>& environment,
                                        bool strict) {
  std::vector<Note> notes;
  for (const auto& [name, value] : environment) {
    const Variable* found = nullptr;
    for (const Variable& variable : kVariables) {
      if (found == nullptr && Covers(variable, name)) found = &variable;
    }
    if (found != nullptr && !found->acts) {
      notes.push_back({Note::Kind::kNoEffect, name, std::string(found->here)});
    } else if (found == nullptr && name.starts_with("VLLM_")) {
      const std::string text = fmt::format("Unknown vLLM environment variable detected: {}", name);
      if (strict) return Fail(ErrorCode::kInvalidArgument, text, name);
      notes.push_back({Note::Kind::kWarning, name, "is no variable that vLLM has"});
    }
  }
  return notes;
}

}  // namespace sluice::options
