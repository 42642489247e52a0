#include "options/trtllm_keys.h"

namespace sluice::options {
namespace {

constexpr std::string_view kNoGraphs =
    "a step is started without a graph; there is none to capture";
constexpr std::string_view kNoCompiler = "nothing is compiled at run time";
constexpr std::string_view kOneDevice = "one device computes everything";
constexpr std::string_view kKernels = "kernels are chosen for this machine; --cpu-isa forces a set";
constexpr std::string_view kMemoryOnly = "the cache lives in memory alone";
constexpr std::string_view kScheduler = "the scheduler decides it by the state of the cache";
constexpr std::string_view kStatistics = "/metrics has what is counted";
constexpr std::string_view kDrafts = "drafts change the speed, never the answers";
constexpr std::string_view kNoPython = "there is no Python in this program";
constexpr std::string_view kWhole = "sequences keep all of their cache";
constexpr std::string_view kNoAdapters =
    "adapters are not served; merge the adapter into the checkpoint and serve that";

constexpr TrtllmKey kKeys[] = {
    {"model", "model", ""},
    {"tokenizer", "tokenizer", ""},
    {"tokenizer_mode", "", "there is one tokenizer, and it reads tokenizer.json"},
    {"skip_tokenizer_init", "", "there is one tokenizer, and it reads tokenizer.json"},
    {"trust_remote_code", "trust-remote-code", ""},
    {"dtype", "dtype", ""},
    {"revision", "revision", ""},
    {"tokenizer_revision", "tokenizer-revision", ""},
    {"served_model_name", "served-model-name", ""},
    {"chat_template", "chat-template", ""},
    {"load_format", "load-format", ""},
    {"backend", "trtllm-backend", ""},
    {"host", "host", ""},
    {"port", "port", ""},
    {"log_level", "log-level", ""},
    {"reasoning_parser", "reasoning-parser", ""},
    {"tool_parser", "tool-call-parser", ""},

    {"max_batch_size", "max-num-seqs", ""},
    {"max_num_tokens", "max-num-batched-tokens", ""},
    {"max_seq_len", "max-model-len", ""},
    {"max_input_len", "", "max_seq_len bounds prompt and answer together"},
    {"max_beam_width", "", "requests say themselves how many beams they want"},
    {"enable_chunked_prefill", "enable-chunked-prefill", ""},
    {"stream_interval", "stream-interval", ""},
    {"num_postprocess_workers", "", "text work has its own threads, --renderer-num-workers"},
    {"postprocess_tokenizer_dir", "", "text work has its own threads"},
    {"disable_overlap_scheduler", "", "text work and HTTP always overlap the next step"},
    {"enable_early_first_token_response", "", "each token is sent when it is there"},
    {"enable_in_graph_sampling", "", kNoGraphs},
    {"garbage_collection_gen0_threshold", "", "there is no garbage collector"},
    {"batch_wait_timeout_ms", "", "no prompt is held back"},
    {"batch_wait_timeout_iters", "", "no prompt is held back"},
    {"batch_wait_max_tokens_ratio", "", "no prompt is held back"},

    {"tensor_parallel_size", "tensor-parallel-size", ""},
    {"pipeline_parallel_size", "pipeline-parallel-size", ""},
    {"context_parallel_size", "prefill-context-parallel-size", ""},
    {"moe_expert_parallel_size", "ep-size", ""},
    {"moe_tensor_parallel_size", "", kOneDevice},
    {"moe_cluster_parallel_size", "moe-cluster-parallel-size", ""},
    {"gpus_per_node", "gpus-per-node", ""},
    {"cp_config", "", kOneDevice},
    {"enable_attention_dp", "enable-attention-dp", ""},
    {"attention_dp_config", "", kOneDevice},
    {"attention_dp_config.enable_balance", "", kOneDevice},
    {"attention_dp_config.batching_wait_iters", "", kOneDevice},
    {"attention_dp_config.timeout_iters", "", kOneDevice},
    {"enable_lm_head_tp_in_adp", "", kOneDevice},
    {"allreduce_strategy", "", kOneDevice},
    {"mpi_session", "", kOneDevice},
    {"orchestrator_type", "", kOneDevice},
    {"ray_worker_extension_cls", "", kOneDevice},

    {"kv_cache_config", "", ""},
    {"kv_cache_config.dtype", "kv-cache-dtype", ""},
    {"kv_cache_config.free_gpu_memory_fraction", "gpu-memory-utilization", ""},
    {"kv_cache_config.enable_block_reuse", "enable-prefix-caching", ""},
    {"kv_cache_config.tokens_per_block", "block-size", ""},
    {"kv_cache_config.max_gpu_total_bytes", "kv-cache-memory-bytes", ""},
    {"kv_cache_config.max_tokens", "num-gpu-blocks-override", ""},
    {"kv_cache_config.max_attention_window", "", kWhole},
    {"kv_cache_config.sink_token_length", "", kWhole},
    {"kv_cache_config.host_cache_size", "", kMemoryOnly},
    {"kv_cache_config.disk_cache_size", "", kMemoryOnly},
    {"kv_cache_config.disk_cache_path", "", kMemoryOnly},
    {"kv_cache_config.onboard_blocks", "", kMemoryOnly},
    {"kv_cache_config.cross_kv_cache_fraction", "", kMemoryOnly},
    {"kv_cache_config.secondary_offload_min_priority", "", kMemoryOnly},
    {"kv_cache_config.event_buffer_max_size", "", "no events of the cache are told"},
    {"kv_cache_config.kv_events_config", "", "no events of the cache are told"},
    {"kv_cache_config.attention_dp_events_gather_period_ms", "", "no events of the cache are told"},
    {"kv_cache_config.enable_partial_reuse", "", "whole blocks are used again"},
    {"kv_cache_config.copy_on_partial_reuse", "", "whole blocks are used again"},
    {"kv_cache_config.use_uvm", "", kMemoryOnly},
    {"kv_cache_config.mamba_ssm_cache_dtype", "", "no model that is served here has such layers"},
    {"kv_cache_config.iteration_stats_interval", "", kStatistics},
    {"kv_cache_config.use_kv_cache_manager_v2", "", "there is one manager of blocks"},

    {"scheduler_config", "", ""},
    {"scheduler_config.capacity_scheduler_policy", "", kScheduler},
    {"scheduler_config.context_chunking_policy", "", kScheduler},
    {"scheduler_config.waiting_queue_policy", "", kScheduler},
    {"scheduler_config.enable_prefix_aware_scheduling", "", kScheduler},
    {"scheduler_config.dynamic_batch_config", "", kScheduler},

    {"cuda_graph_config", "", kNoGraphs},
    {"cuda_graph_config.batch_sizes", "", kNoGraphs},
    {"cuda_graph_config.max_batch_size", "", kNoGraphs},
    {"cuda_graph_config.enable_padding", "", kNoGraphs},
    {"cuda_graph_config.padding_enabled", "", kNoGraphs},
    {"use_cuda_graph", "", kNoGraphs},
    {"cuda_graph_batch_sizes", "", kNoGraphs},
    {"cuda_graph_max_batch_size", "", kNoGraphs},
    {"cuda_graph_padding_enabled", "", kNoGraphs},
    {"prefill_cuda_graph_backend", "", kNoGraphs},
    {"torch_compile_config", "", kNoCompiler},
    {"torch_compile_config.enable_fullgraph", "", kNoCompiler},
    {"torch_compile_config.enable_inductor", "", kNoCompiler},
    {"torch_compile_config.enable_piecewise_cuda_graph", "", kNoCompiler},
    {"torch_compile_config.capture_num_tokens", "", kNoCompiler},
    {"torch_compile_config.enable_userbuffers", "", kNoCompiler},
    {"torch_compile_config.max_num_streams", "", kNoCompiler},
    {"enable_autotuner", "", kKernels},
    {"enable_min_latency", "", kKernels},
    {"force_dynamic_quantization", "", "scales are the checkpoint's where it has them"},
    {"nvfp4_gemm_config", "", kKernels},
    {"attn_backend", "", kKernels},
    {"attention_backend", "", kKernels},
    {"sparse_attention_config", "", kKernels},
    {"moe_config", "", ""},
    {"moe_config.backend", "", kKernels},
    {"moe_config.max_num_tokens", "", kKernels},
    {"moe_config.load_balancer", "", kOneDevice},
    {"moe_config.disable_finalize_fusion", "", kKernels},
    {"moe_config.use_low_precision_moe_combine", "", kKernels},
    {"moe_backend", "", kKernels},

    {"speculative_config", "", kDrafts},
    {"guided_decoding_backend", "",
     "structured output is not served yet: a request for it is answered 400"},
    {"enable_lora", "", "", kNoAdapters},
    {"lora_config", "", "", kNoAdapters},
    {"peft_cache_config", "", "", kNoAdapters},
    {"cache_transceiver_config", "", "prompts and answers are computed by the same server"},
    {"print_iter_log", "", kStatistics},
    {"enable_iter_perf_stats", "enable-iter-perf-stats", ""},
    {"enable_iter_req_stats", "", kStatistics},
    {"iter_stats_max_iterations", "", kStatistics},
    {"request_stats_max_iterations", "", kStatistics},
    {"max_stats_len", "", kStatistics},
    {"return_perf_metrics", "", kStatistics},
    {"perf_metrics_max_requests", "", kStatistics},
    {"enable_energy_metrics", "", kStatistics},
    {"telemetry_config", "", "nothing about you is ever sent to anybody"},
    {"otlp_traces_endpoint", "otlp-traces-endpoint", ""},
    {"batching_type", "", kScheduler},
    {"normalize_log_probs", "", "logprobs are those of the tokens, added nowhere"},
    {"gather_generation_logits", "", "requests say themselves what they want"},
    {"env_overrides", "", kNoPython},
    {"checkpoint_loader", "", kNoPython},
    {"checkpoint_format", "", "a checkpoint says itself what it is"},
    {"mm_encoder_only", "", "text alone is served"},
    {"video_pruning_rate", "", "text alone is served"},
};

}  // namespace

std::span<const TrtllmKey> TrtllmKeys() {
  return kKeys;
}

}  // namespace sluice::options
