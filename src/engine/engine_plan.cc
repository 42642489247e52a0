#include "engine/engine_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cache/block_counts.h"
#include "checkpoint/scheme.h"
#include "device/stand_in.h"
#include "engine/engine.h"
#include "engine/kv_tiers.h"
#include "engine/plan_draft.h"
#include "engine/plan_states.h"
#include "engine/plan_text.h"
#include "engine/plan_tower.h"
#include "engine/shared_memory.h"
#include "kernels/block_maxima.h"
#include "models/dense_layers.h"
#include "models/encoder/encoder_spec.h"
#include "models/lora_adapter.h"
#include "models/shard.h"
#include "sampler/sampler.h"
#include "speculation/proposer.h"

namespace sluice {
namespace {

// Defaults of a step.
struct StepDefaults {
  int64_t max_num_seqs = kDefaultMaxNumSeqs;
  int64_t max_num_batched_tokens = kDefaultMaxNumBatchedTokens;
  // Up to this number of rows, products take no longer than reading the weights.
  int64_t max_proposed_tokens = 16;
};
// The default number of draft tokens. A drafter proposes only as many tokens as pay off according
// to measured times.
constexpr int64_t kMaxDraftedTokens = 64;
constexpr int kMaxThreads = 1024;
constexpr int kMaxThreadsPerCpu = 4;
// Maximum memory for the rows of prompt logits in a step (but at least 32 rows).
constexpr int64_t kPromptLogitBytes = int64_t{64} << 20;
constexpr int64_t kMiB = int64_t{1} << 20;
// Default fractions of a device's memory: vLLM's is a fraction of all memory, TensorRT-LLM's a
// fraction of the rest.
constexpr double kDeviceUtilization = 0.92;
constexpr double kDeviceUtilizationOfRest = 0.9;
// Memory that the driver later allocates for kernels and libraries.
constexpr int64_t kDeviceReserve = 256 * kMiB;

tl::unexpected<Error> Invalid(const char* param, std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), param);
}

Result<ElementType> PlanDtype(const EngineConfig& config, const ModelConfig& model, bool on_device,
                              std::vector<std::string>& notes) {
  if (!config.dtype) {
    const bool is_exact =
        config.activation_format == ModelOptions::ActivationRounding::kCheckpoint && !on_device &&
        model.scheme != nullptr && !model.scheme->Method().empty();
    if (!is_exact) return ElementType::kBF16;
    notes.push_back(
        "dtype is float32: with activation_format checkpoint, only the values that the "
        "checkpoint's scheme rounds are rounded");
    return ElementType::kF32;
  }
  switch (*config.dtype) {
    case ElementType::kBF16:
    case ElementType::kF32: return *config.dtype;
    case ElementType::kF16:
      notes.push_back("dtype float16 runs as bfloat16");
      return ElementType::kBF16;
    default:
      return Invalid("dtype", fmt::format("dtype must be bfloat16, float16 or float32, got {}",
                                          ElementTypeName(*config.dtype)));
  }
}

Result<ElementType> PlanKvType(const EngineConfig& config, ElementType dtype,
                               const ModelConfig& model, bool on_device,
                               std::vector<std::string>& notes) {
  ElementType type = config.kv_cache_dtype.value_or(dtype);
  switch (type) {
    case ElementType::kBF16:
    case ElementType::kF16:
    case ElementType::kF32:
    case ElementType::kF8E4M3: break;
    default:
      return Invalid("kv_cache_dtype",
                     fmt::format("kv_cache_dtype must be bfloat16, float16, float32, fp8 or "
                                 "fp8_e4m3, got {}",
                                 ElementTypeName(type)));
  }
  if (!config.kv_cache_dtype && model.scheme != nullptr && model.scheme->WantsFp8KvCache()) {
    notes.push_back(
        "the KV cache is fp8, as the checkpoint specifies; kv_cache_dtype bfloat16 is more "
        "accurate and takes twice the memory");
    return ElementType::kF8E4M3;
  }
  if (type == ElementType::kBF16 && model.spec.FirstMoeLayer() != nullptr && !on_device) {
    notes.push_back(
        "16-bit keys and values of a model with experts are float16, not bfloat16: the larger "
        "errors of bfloat16 would change the choice of experts more often");
    type = ElementType::kF16;
  }
  return type;
}

// Checks that the device's kernels support the types.
Status CheckDeviceTypes(const EnginePlan& plan) {
  if (plan.dtype != ElementType::kBF16) {
    return Invalid("dtype",
                   fmt::format("dtype {}: {} computes in bfloat16; omit dtype, or use --device cpu",
                               DtypeName(plan.dtype), plan.device_name));
  }
  if (plan.kv_type != ElementType::kBF16 && plan.kv_type != ElementType::kF8E4M3) {
    return Invalid(
        "kv_cache_dtype",
        fmt::format("kv_cache_dtype {}: on {} it must be bfloat16 or fp8; or use --device cpu",
                    DtypeName(plan.kv_type), plan.device_name));
  }
  return {};
}

Status PlanThreads(const Topology& topology, EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  const int most = std::min(kMaxThreads, kMaxThreadsPerCpu * std::max(1, topology.logical_cpus));
  if (config.num_threads < 0 || config.num_threads > most) {
    return Invalid(
        "threads",
        fmt::format(
            "threads must be in [1, {}] on this machine of {} CPUs (or 0 for all cores), got {}",
            most, topology.logical_cpus, config.num_threads));
  }
  plan.num_threads = config.num_threads > 0 ? config.num_threads : topology.DefaultThreads();
  return {};
}

// If the number of ranks is not fixed and the model cannot be divided among that many, plans one
// rank.
Result<RankPlan> RanksFor(const ModelConfig& model, const Topology& topology,
                          const EnginePlan& plan) {
  EngineConfig config = plan.config;
  ASSIGN_OR_RETURN(RankPlan ranks, PlanRanks(config, topology, plan.num_threads, plan.device_name));
  if (config.exact_ranks || plan.on_device() || ranks.num_ranks() == 1) return ranks;
  const Status divides = CheckRanks(model.spec, ranks.tensor_size, ranks.num_stages);
  if (divides) return ranks;
  config.tensor_parallel_size = config.pipeline_parallel_size = 1;
  ASSIGN_OR_RETURN(ranks, PlanRanks(config, topology, plan.num_threads, plan.device_name));
  ranks.fewer = true;
  ranks.note = fmt::format("one rank computes with all threads: {}", divides.error().message);
  return ranks;
}

Status PlanEngines(EnginePlan& plan) {
  const int count = plan.config.data_parallel_size;
  if (count < 1 || count > kMostEngines) {
    return Invalid(
        "data_parallel_size",
        fmt::format("data_parallel_size must be in [1, {}], got {}", kMostEngines, count));
  }
  if (count > 1 && plan.on_device()) {
    return Invalid("data_parallel_size",
                   fmt::format("data_parallel_size {}: {} has one engine; run a server for each "
                               "device behind a load balancer, or use --device cpu",
                               count, plan.device_name));
  }
  plan.num_engines = count;
  if (count == 1) return {};
  const int threads = plan.num_threads;
  plan.num_threads = 0;
  for (int engine = 0; engine < count; ++engine) {
    for (const RankThreads& rank : ThreadsOfEngine(plan.ranks, engine, count))
      plan.num_threads += rank.num_threads;
  }
  const bool has_threads = plan.num_threads <= threads;
  (has_threads ? plan.notes : plan.warnings)
      .push_back(
          fmt::format("data_parallel_size {}: {} engines share the weights and divide {} threads{}",
                      count, count, threads,
                      has_threads ? ""
                                  : fmt::format("; each of their ranks has at least one thread, {} "
                                                "in total: fewer engines would be faster",
                                                plan.num_threads)));
  return {};
}

// vLLM's server defaults: larger steps on large devices.
StepDefaults StepDefaultsOf(const EnginePlan& plan) {
  constexpr int64_t kGiB = 1024 * kMiB;
  if (!plan.on_device() || plan.memory.total_bytes < 70 * kGiB ||
      plan.device_name.find("A100") != std::string::npos) {
    return {};
  }
  return {1024, plan.memory.total_bytes >= 160 * kGiB ? 16384 : 8192, 128};
}

// Plans the number of steps in flight.
void PlanFlights(const ModelConfig& model, EnginePlan& plan) {
  SchedulerLimits& step = plan.scheduler;
  if (!plan.on_device()) {
    step.num_stages = step.steps_in_flight = plan.ranks.num_stages * plan.config.process_stages;
    if (plan.config.async_scheduling)
      plan.notes.push_back(
          "async_scheduling has no effect on a CPU, which computes each step when it is planned");
    return;
  }
  if (!plan.config.async_scheduling) return;
  if (plan.ranks.num_ranks() > 1) {
    plan.warnings.push_back("async_scheduling: several devices compute one step at a time");
  } else if (plan.config.speculates()) {
    plan.warnings.push_back(
        "async_scheduling: steps are computed one at a time, because speculative_config needs the "
        "tokens of the previous step; omit one of the two");
  } else if (plan.config.offload.is_given()) {
    plan.warnings.push_back(
        "async_scheduling: steps are computed one at a time, because --kv-offloading-size and "
        "--kv-offloading-path move blocks between steps");
  } else if (IsEncoder(model.architecture)) {
    plan.warnings.push_back("async_scheduling: an encoder's steps are computed one at a time");
  } else {
    step.steps_in_flight = 2;
  }
}

// Plans which steps a device records as graphs.
void PlanRecording(EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  const auto note = [&](const char* text) { plan.notes.emplace_back(text); };
  const auto warn = [&](const char* text) {
    (config.graphs.is_default ? plan.notes : plan.warnings).emplace_back(text);
  };
  if (!config.graphs.records) return;
  if (!plan.on_device()) return note("cuda_graphs have no effect on a CPU");
  if (plan.pooling)
    return note("cuda_graphs have no effect for a pooling model, which has no decode steps");
  if (plan.ranks.num_stages > 1)
    return warn("cuda_graphs: devices of several stages launch their steps kernel by kernel");
  if (plan.ranks.tensor_size > 1 && config.exchanges_by_nccl)
    return warn(
        "cuda_graphs: exchanges over NCCL are not captured (disable_custom_all_reduce, or devices "
        "that cannot access each other's memory)");
  if (config.profile_ops)
    return warn(
        "profile-ops: no step is captured as a graph, since the host waits for each operator");
  if (config.speculates())
    note("cuda_graphs: steps that verify proposed tokens are launched kernel by kernel");
  plan.recorded = PlanGraphs(config.graphs, plan.scheduler.max_num_seqs, plan.notes);
  // The emulator loads no kernels, and is slow.
  plan.recorded.runs_before = !RunsOnCpu(plan.device);
}

// Plans the limits of a step, except those that depend on the length of the context.
Status PlanStep(const ModelConfig& model, EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  if (config.block_size < 1 || config.block_size > 1024) {
    return Invalid("block_size",
                   fmt::format("block_size must be in [1, 1024], got {}", config.block_size));
  }
  const auto positive = [](const char* param, const std::optional<int64_t>& value) -> Status {
    if (!value || *value >= 1) return {};
    return Invalid(param, fmt::format("{} must be at least 1, got {}", param, *value));
  };
  RETURN_IF_ERROR(positive("max_num_seqs", config.max_num_seqs));
  RETURN_IF_ERROR(positive("max_num_batched_tokens", config.max_num_batched_tokens));
  RETURN_IF_ERROR(positive("max_model_len", config.max_model_len));
  RETURN_IF_ERROR(positive("kv_cache_memory_bytes", config.kv_cache_bytes));
  RETURN_IF_ERROR(positive("num_gpu_blocks_override", config.num_blocks_override));
  if (config.memory_utilization &&
      !(*config.memory_utilization > 0 && *config.memory_utilization <= 1)) {
    return Invalid("gpu_memory_utilization",
                   fmt::format("gpu_memory_utilization must be in (0, 1], got {}",
                               *config.memory_utilization));
  }
  if (config.long_prefill_token_threshold < 0) {
    return Invalid("long_prefill_token_threshold",
                   fmt::format("long_prefill_token_threshold must be 0 or more, got {}",
                               config.long_prefill_token_threshold));
  }
  constexpr int64_t kMost = 1 << 20;
  const StepDefaults defaults = StepDefaultsOf(plan);
  SchedulerLimits& step = plan.scheduler;
  step.block_size = config.block_size;
  step.chunked_prefill = config.enable_chunked_prefill;
  step.long_prefill_token_threshold = config.long_prefill_token_threshold;
  step.policy = config.scheduling_policy;
  step.ageing = config.ageing;
  PlanFlights(model, plan);
  step.max_prompt_logit_rows = std::clamp<int64_t>(
      kPromptLogitBytes / std::max<int64_t>(1, model.vocab_size * int64_t{sizeof(float)}), 32, 256);
  step.max_num_seqs = config.max_num_seqs.value_or(defaults.max_num_seqs);
  if (config.speculates()) step.max_proposed_tokens = defaults.max_proposed_tokens;
  if (config.draft.is_given())
    step.max_proposed_tokens = std::max(step.max_proposed_tokens, kMaxDraftedTokens);
  step.max_num_batched_tokens = config.max_num_batched_tokens.value_or(
      std::max(defaults.max_num_batched_tokens, step.max_num_seqs));
  if (step.max_num_seqs > kMost || step.max_num_batched_tokens > kMost) {
    return Invalid(
        "max_num_batched_tokens",
        fmt::format("max_num_seqs and max_num_batched_tokens must be at most {}", kMost));
  }
  if (step.max_num_batched_tokens < step.max_num_seqs) {
    if (config.max_num_seqs) {
      return Invalid(
          "max_num_batched_tokens",
          fmt::format("max_num_batched_tokens ({}) must be greater than or equal to "
                      "max_num_seqs ({}): every running sequence needs a token in each step",
                      step.max_num_batched_tokens, step.max_num_seqs));
    }
    step.max_num_seqs = step.max_num_batched_tokens;
    plan.notes.push_back(
        fmt::format("max_num_seqs is {}, the value of max_num_batched_tokens", step.max_num_seqs));
  }
  return {};
}

// Plans a single rank, because `what` cannot be divided.
Status TakeOneRank(const char* what, EnginePlan& plan) {
  EngineConfig& config = plan.config;
  if (config.tensor_parallel_size == 1 && config.pipeline_parallel_size == 1) return {};
  if (config.exact_ranks) {
    return Invalid("tensor_parallel_size",
                   fmt::format("{} has only one rank: omit --tensor-parallel-size and "
                               "--pipeline-parallel-size",
                               what));
  }
  config.tensor_parallel_size = config.pipeline_parallel_size = 1;
  plan.warnings.push_back(fmt::format("{} has only one rank", what));
  return {};
}

// Plans the number and kind of adapter slots.
Status PlanAdapters(const ModelConfig& model, EnginePlan& plan) {
  const AdapterSettings& asked = plan.config.adapters;
  if (!asked.enabled) return {};
  if (IsEncoder(model.architecture)) {
    return Invalid("enable_lora", fmt::format("{} is an encoder, and LoRA adapters are served with "
                                              "decoders: omit --enable-lora",
                                              model.architecture));
  }
  if (asked.max_cpu_loras && *asked.max_cpu_loras < asked.max_loras) {
    return Invalid("max_cpu_loras",
                   fmt::format("max_cpu_loras ({}) must be greater than or equal to max_loras ({})",
                               *asked.max_cpu_loras, asked.max_loras));
  }
  // With a device, adapters that wait for a slot stay in their files, not in host memory.
  plan.lora.num_slots = static_cast<int>(
      asked.max_cpu_loras ? (plan.on_device() ? asked.max_loras : *asked.max_cpu_loras)
                          : std::max(asked.max_loras, static_cast<int64_t>(asked.modules.size())));
  plan.lora.max_rank = asked.max_rank;
  plan.lora.target_modules = asked.target_modules;
  const auto is_experts = [](const std::string& name) { return name == "experts"; };
  plan.lora.experts =
      std::any_of(asked.target_modules.begin(), asked.target_modules.end(), is_experts) ||
      std::any_of(asked.modules.begin(), asked.modules.end(),
                  [](const AdapterSource& source) { return ChangesExperts(source.path); });
  if (plan.on_device() && !asked.modules_to_save.empty()) {
    return Invalid(
        "lora_modules_to_save",
        "adapters with their own weights are served only on a CPU: omit --lora-modules-to-save");
  }
  plan.lora.vectors = !plan.on_device();
  if (plan.lora.vectors) {
    std::set<std::string> names(asked.modules_to_save.begin(), asked.modules_to_save.end());
    for (const AdapterSource& source : asked.modules) names.merge(ReplacedModules(source.path));
    plan.lora.replaced_modules.assign(names.begin(), names.end());
  }
  plan.lora.type = asked.dtype.value_or(plan.dtype);
  if (plan.lora.type == ElementType::kF16) {
    plan.lora.type = ElementType::kBF16;
    plan.notes.push_back("lora_dtype float16 is stored as bfloat16");
  }
  return {};
}

Status PlanPooling(EnginePlan& plan) {
  SchedulerLimits& step = plan.scheduler;
  if (plan.config.speculates()) {
    return Invalid("speculative_config",
                   "speculation is only for generating models: omit --speculative-config");
  }
  step.max_prompt_logit_rows = 1;  // larger only for mean pooling (PlanBytes)
  return {};
}

// The length of the longest sequence, below `too_long`, that fits in `blocks` blocks.
int64_t LongestSequence(const EnginePlan& plan, int64_t blocks, int64_t too_long) {
  int64_t fits = 0;
  while (too_long - fits > 1) {
    const int64_t middle = fits + (too_long - fits) / 2;
    (MostBlocks(plan.scheduler, middle) <= blocks ? fits : too_long) = middle;
  }
  return fits;
}

// Computes the bytes for plan.max_model_len.
Status PlanBytes(const ModelConfig& model, const PlanModelFunction& plan_model, EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  if (!config.enable_chunked_prefill) {
    if (config.max_num_batched_tokens && *config.max_num_batched_tokens < plan.max_model_len) {
      return Invalid("max_num_batched_tokens",
                     fmt::format("max_num_batched_tokens ({}) is smaller than max_model_len ({}). "
                                 "Without chunked prefill a "
                                 "prompt is computed in one step: raise max_num_batched_tokens, "
                                 "lower max_model_len or "
                                 "enable chunked prefill",
                                 *config.max_num_batched_tokens, plan.max_model_len));
    }
    if (!config.max_num_batched_tokens) {
      plan.scheduler.max_num_batched_tokens =
          std::max({StepDefaultsOf(plan).max_num_batched_tokens, plan.scheduler.max_num_seqs,
                    plan.max_model_len});
    }
  }
  if (plan.pooling && plan.pooling->method == PoolingMethod::kMean)
    plan.scheduler.max_prompt_logit_rows = plan.scheduler.max_num_batched_tokens;
  const RankPlan& ranks = plan.ranks;
  // The last engine has the most threads.
  const std::vector<RankThreads> threads =
      ThreadsOfEngine(ranks, plan.num_engines - 1, plan.num_engines);
  PlanImageRows(plan);
  ASSIGN_OR_RETURN(const ModelMemory memory,
                   ranks.num_ranks() == 1 || plan.on_device()
                       ? plan_model(model, ModelOptionsOf(plan), threads.back().num_threads)
                       : PlanParallelModel(model, ModelOptionsOf(plan), threads.back().num_threads,
                                           ranks.tensor_size, ranks.num_stages));
  plan.weight_bytes = memory.weight_bytes;
  plan.token_weight_bytes = memory.token_weight_bytes;
  plan.workspace_bytes = memory.workspace_bytes;
  plan.adapter_bytes = memory.lora_bytes;
  plan.graph_bytes = memory.graph_bytes;
  if (!plan.on_device()) {  // On a device, the logits are part of the workspace.
    const int64_t logits = model.spec.ResultSize() + kernels::NumMaxima(model.vocab_size);
    plan.workspace_bytes +=
        plan.scheduler.steps_in_flight * plan.max_logit_rows() * logits * int64_t{sizeof(float)} +
        Sampler::ScratchBytes(model.vocab_size, threads.front().num_threads);
    const SpeculationConfig& speculation = config.speculation;
    plan.workspace_bytes += Proposer::SharedBytes(speculation) +
                            plan.scheduler.max_proposed_tokens *
                                Proposer::SequenceBytes(speculation, plan.max_model_len);
  }
  if (plan.pooling) {
    const std::vector<DenseModule>& dense = plan.pooling->dense;
    plan.dense_bytes = DenseLayers::WeightBytes(dense);
    const int64_t workspace = DenseLayers::WorkspaceBytes(dense, plan.scheduler.max_num_seqs,
                                                          threads.front().num_threads);
    if (plan.on_device()) {
      plan.dense_bytes += workspace;
    } else {
      plan.weight_bytes += plan.dense_bytes;
      plan.workspace_bytes += workspace;
    }
  }
  PlanTowerBytes(model, threads.front().num_threads, plan);
  plan.workspace_bytes *= plan.num_engines;
  if (plan.draft) RETURN_IF_ERROR(PlanDraftBytes(plan_model, threads.front().num_threads, plan));
  plan.kv_groups = memory.kv_groups;
  // If pipeline stages are processes, a stage may have no attention layers.
  plan.kv_bytes_per_block = std::max<int64_t>(1, memory.kv_bytes_per_group_block);
  plan.state_bytes_per_slot = memory.state_bytes_per_slot;
  plan.scheduler.groups = plan.kv_groups.spans;
  return CheckStates(plan);
}

// Repeats PlanBytes for other limits, and replans the tiers, because the size of their pieces may
// have changed.
Status PlanBytesAnew(const ModelConfig& model, const PlanModelFunction& plan_model,
                     const MemoryLimits& host, EnginePlan& plan) {
  RETURN_IF_ERROR(PlanBytes(model, plan_model, plan));
  return PlanTiers(model, host, plan);
}

double UtilizationOfAll(const EngineConfig& config) {
  return config.memory_utilization.value_or(kDeviceUtilization);
}

// Minimum number of bytes reserved for requests.
int64_t LeastRequestBytes(const EngineConfig& config, const MemoryLimits& host) {
  return config.request_memory_bytes.value_or(
      std::min(int64_t{64} << 20, host.available_bytes / 16));
}

// `rest`: host memory that the plan leaves.
int64_t RequestBytes(const EngineConfig& config, const MemoryLimits& host, int64_t rest) {
  if (config.request_memory_bytes) return *config.request_memory_bytes;
  return std::max(LeastRequestBytes(config, host), std::min(int64_t{1} << 30, rest / 2));
}

// Maximum number of bytes for the caches of all engines.
int64_t KvBudget(const EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  const int64_t rest =
      plan.memory.available_bytes - plan.fixed_bytes() - LeastRequestBytes(config, plan.memory);
  if (config.kv_cache_bytes) return plan.num_engines * *config.kv_cache_bytes;
  if (plan.on_device()) {
    const int64_t fixed = kDeviceReserve + plan.fixed_bytes();
    const auto part = [](double share, int64_t bytes) {
      return static_cast<int64_t>(share * static_cast<double>(bytes));
    };
    // Memory for requests is host memory, which an integrated GPU shares.
    const int64_t free_bytes = plan.memory.available_bytes -
                               (IsShared(plan.memory) ? LeastRequestBytes(config, plan.memory) : 0);
    if (config.utilization_of_rest) {
      return part(config.memory_utilization.value_or(kDeviceUtilizationOfRest), free_bytes - fixed);
    }
    const int64_t rest_of_device =
        std::min(free_bytes, part(UtilizationOfAll(config), plan.memory.total_bytes)) - fixed;
    return config.memory_utilization ? rest_of_device : rest_of_device / config.memory_sharers;
  }
  if (config.memory_utilization) {
    const auto allowed = static_cast<int64_t>(*config.memory_utilization *
                                              static_cast<double>(plan.memory.total_bytes));
    return std::min(rest, allowed - plan.fixed_bytes());
  }
  // Leave memory for the rest of the process and the machine.
  return std::min(plan.memory.available_bytes / 4 / config.memory_sharers, rest - rest / 8);
}

// For error messages: describes what takes memory besides an engine's KV cache.
std::string Neighbours(const EnginePlan& plan) {
  if (plan.config.num_blocks_override) return "";
  if (plan.config.kv_cache_bytes) {
    return plan.draft
               ? fmt::format(" beside {} of the draft model's", MemoryText(plan.draft->kv_bytes))
               : "";
  }
  std::vector<std::string> parts = {
      fmt::format("{} of weights", MemoryText(plan.weight_bytes)),
      fmt::format("{} of workspace", MemoryText(plan.workspace_bytes))};
  if (plan.graph_bytes > 0)
    parts.push_back(fmt::format("{} of graphs", MemoryText(plan.graph_bytes)));
  if (plan.draft)
    parts.push_back(fmt::format("{} of the draft model", MemoryText(plan.draft->total_bytes())));
  const std::string last = std::move(parts.back());
  parts.pop_back();
  return fmt::format(" beside {} and {}", fmt::join(parts, ", "), last);
}

tl::unexpected<Error> TooSmall(const EnginePlan& plan, int64_t budget) {
  const EngineConfig& config = plan.config;
  const int64_t needed = MostBlocks(plan.scheduler, plan.max_model_len) * plan.kv_bytes_per_block;
  const int64_t most = LongestSequence(plan, std::max<int64_t>(0, budget / plan.kv_bytes_per_block),
                                       plan.max_model_len);
  const char* option = config.num_blocks_override                      ? "num_gpu_blocks_override"
                       : config.kv_cache_bytes                         ? "kv_cache_memory_bytes"
                       : config.memory_utilization || plan.on_device() ? "gpu_memory_utilization"
                                                                       : "kv_cache_memory_bytes";
  std::vector<std::string> remedies;
  if (most >= 2) remedies.push_back(fmt::format("lower max_model_len to at most {}", most));
  if (plan.num_engines * needed + plan.fixed_bytes() <= plan.memory.available_bytes)
    remedies.push_back(fmt::format("raise {}", option));
  if (plan.num_engines > 1) remedies.emplace_back("lower data_parallel_size");
  if (plan.draft) remedies.emplace_back("omit the draft model");
  if (plan.graph_bytes > 0) remedies.emplace_back("record fewer graphs (cudagraph_capture_sizes)");
  if (remedies.empty())
    remedies = {"use a smaller model", "lower max_num_batched_tokens and max_num_seqs"};
  return Fail(
      ErrorCode::kResourceExhausted,
      fmt::format(
          "one sequence of max_model_len {} needs {} of KV cache, but {} is "
          "available for it{}{}; {}",
          plan.max_model_len, MemoryText(needed), MemoryText(std::max<int64_t>(0, budget)),
          plan.num_engines == 1 ? "" : fmt::format(" in each of {} engines", plan.num_engines),
          Neighbours(plan), fmt::join(remedies, ", or ")),
      "max_model_len");
}

// The requested share must be free, as in vLLM: a server must not take the rest of a device that
// others use.
Status CheckDeviceMemory(EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  const double utilization = UtilizationOfAll(config);
  const auto wanted =
      static_cast<int64_t>(utilization * static_cast<double>(plan.memory.total_bytes));
  const bool is_shared = IsShared(plan.memory);
  const int64_t free_bytes =
      plan.memory.available_bytes + (is_shared ? SharedHeadroom(plan.memory.total_bytes) : 0);
  if (config.kv_cache_bytes || config.utilization_of_rest || free_bytes >= wanted) return {};
  if (is_shared && !config.memory_utilization) {
    plan.notes.push_back(fmt::format(
        "{} shares the memory of the machine, which has {} available: the engine takes {}",
        plan.device_name, MemoryText(free_bytes), MemoryText(plan.memory.available_bytes)));
    return {};
  }
  return Fail(ErrorCode::kResourceExhausted,
              fmt::format("{} of {}'s {} are free, but gpu_memory_utilization {} requests {}. End "
                          "other programs that use its memory, or lower gpu_memory_utilization",
                          MemoryText(free_bytes), plan.device_name,
                          MemoryText(plan.memory.total_bytes), utilization, MemoryText(wanted)),
              "gpu_memory_utilization");
}

Status PlanCache(const ModelConfig& model, const PlanModelFunction& plan_model,
                 const MemoryLimits& host, EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  if (plan.on_device()) {
    RETURN_IF_ERROR(CheckDeviceMemory(plan));
  }
  const int64_t fixed = plan.fixed_bytes();
  if (fixed >= plan.memory.available_bytes) {
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format("the weights take {} and the workspace {}{}{}, but only {} of memory "
                    "is free{}. Use a smaller model{}{}",
                    MemoryText(plan.weight_bytes), MemoryText(plan.workspace_bytes),
                    plan.draft
                        ? fmt::format(", the draft model {}", MemoryText(plan.draft->total_bytes()))
                        : "",
                    IsShared(plan.memory) && plan.host_bytes() > 0
                        ? fmt::format(", other data on the CPU {}", MemoryText(plan.host_bytes()))
                        : "",
                    MemoryText(plan.memory.available_bytes), LimitNote(plan.memory),
                    plan.draft ? ", or no draft model" : "",
                    plan.workspace_bytes > plan.weight_bytes
                        ? ", or lower max_num_batched_tokens and max_num_seqs"
                    : plan.dtype == ElementType::kF32 ? ", or dtype bfloat16"
                                                      : ""),
        "model");
  }
  int64_t budget = KvBudget(plan) / plan.num_engines;
  const int64_t max_num_seqs = plan.scheduler.max_num_seqs;
  RETURN_IF_ERROR(PlanStates(budget, plan));
  // With fewer sequences, the workspace is smaller.
  if (plan.scheduler.max_num_seqs < max_num_seqs)
    RETURN_IF_ERROR(PlanBytesAnew(model, plan_model, host, plan));
  if (config.num_blocks_override) {
    budget = *config.num_blocks_override * plan.kv_bytes_per_block * plan.kv_groups.num_groups();
  }
  if (plan.draft) PlanDraftCache(budget, plan);
  int64_t blocks = std::max<int64_t>(0, budget) / plan.kv_bytes_per_block;
  const bool outright = config.kv_cache_bytes || config.num_blocks_override;
  if (MostBlocks(plan.scheduler, plan.max_model_len) > blocks) {
    const int64_t longest = LongestSequence(plan, blocks, plan.max_model_len);
    if (config.max_model_len || longest < 2) return TooSmall(plan, budget);
    plan.notes.push_back(
        fmt::format("max_model_len is {}: the checkpoint allows {}, but the KV cache of {} has no "
                    "memory for more",
                    longest, plan.max_model_len, MemoryText(budget)));
    plan.max_model_len = longest;
    // The workspace also shrinks. The cache keeps its size, but has fewer and larger blocks if a
    // window or chunk is now longer than any sequence.
    RETURN_IF_ERROR(PlanBytesAnew(model, plan_model, host, plan));
    blocks = budget / plan.kv_bytes_per_block;
  }
  if (!outright) {
    blocks = std::min(blocks,
                      plan.scheduler.max_num_seqs * MostBlocks(plan.scheduler, plan.max_model_len));
  }
  plan.num_blocks = blocks;
  plan.kv_bytes = plan.num_engines * blocks * plan.kv_bytes_per_block;
  plan.request_bytes =
      plan.on_device()
          ? RequestBytes(config, host,
                         host.available_bytes -
                             (IsShared(plan.memory) ? plan.total_bytes() : plan.host_bytes()))
          : RequestBytes(config, plan.memory, plan.memory.available_bytes - plan.total_bytes());
  if (plan.taken_bytes() > plan.memory.available_bytes) {
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format(
            "{} of weights, {} of workspace, {} of KV cache{}{} and {} for requests "
            "are more than the {} of memory that is free; "
            "lower {}",
            MemoryText(plan.weight_bytes), MemoryText(plan.workspace_bytes),
            MemoryText(plan.kv_bytes),
            plan.state_bytes > 0 ? fmt::format(", {} of states", MemoryText(plan.state_bytes)) : "",
            plan.draft
                ? fmt::format(", {} of the draft model", MemoryText(plan.draft->total_bytes()))
                : "",
            MemoryText(plan.on_device() ? 0 : plan.request_bytes),
            MemoryText(plan.memory.available_bytes),
            config.num_blocks_override ? "num_gpu_blocks_override" : "kv_cache_memory_bytes"),
        config.num_blocks_override ? "num_gpu_blocks_override" : "kv_cache_memory_bytes");
  }
  return {};
}

}  // namespace

std::string_view DtypeName(ElementType type) {
  switch (type) {
    case ElementType::kF32: return "float32";
    case ElementType::kF16: return "float16";
    case ElementType::kF8E4M3: return "fp8";
    default: return "bfloat16";
  }
}

int64_t EnginePlan::host_bytes() const {
  return on_device() ? tier_bytes + tower_bytes + dense_bytes + (draft ? draft->host_bytes : 0) : 0;
}

int64_t EnginePlan::fixed_bytes() const {
  return weight_bytes + workspace_bytes + adapter_bytes + graph_bytes +
         (on_device() ? 0 : tier_bytes) + (IsShared(memory) ? host_bytes() : 0) +
         (draft ? draft->weight_bytes + draft->workspace_bytes : 0);
}

int64_t EnginePlan::kv_tokens() const {
  // With a single group, sequences of any length can use all blocks.
  if (kv_groups.num_groups() == 1) return num_blocks * config.block_size;
  return num_blocks * max_model_len / MostBlocks(scheduler, max_model_len);
}

ModelOptions ModelOptionsOf(const EnginePlan& plan) {
  const EngineConfig& config = plan.config;
  ModelOptions options;
  options.compute_type = plan.dtype;
  options.load_format =
      config.dummy_weights ? ModelOptions::LoadFormat::kDummy : ModelOptions::LoadFormat::kAuto;
  options.allow_nonfinite = config.allow_nonfinite;
  options.dummy_seed = config.seed;
  options.batch_invariant = config.batch_invariant;
  options.fast_accumulation = config.fast_accumulation;
  options.kv_type = plan.kv_type;
  options.activation_format = config.activation_format;
  options.block_size = config.block_size;
  options.max_rows = plan.scheduler.max_num_batched_tokens;
  options.max_slices = plan.scheduler.max_num_seqs;
  options.max_context = plan.max_model_len;
  options.max_logit_rows = plan.max_logit_rows();
  options.lora = plan.lora;
  options.recorded = plan.recorded;
  options.exchanges_by_nccl = config.exchanges_by_nccl;
  if (plan.draft) options.handed = plan.draft->Handed();
  options.state_slots = plan.num_state_slots;
  options.op_times = plan.op_times;
  if (plan.tower) options.image_rows = plan.image_rows;
  return options;
}

Result<EnginePlan> PlanEngine(const EngineConfig& config, const ModelConfig& model,
                              const MemoryLimits& memory, const Topology& topology,
                              const PlanModelFunction& plan_model, const DeviceInfo* device,
                              const MemoryLimits& host, std::optional<PoolingConfig> pooling,
                              const ModelConfig* draft, const ResolvedTower& tower,
                              std::shared_ptr<const DrafterSpec> head) {
  EnginePlan plan;
  plan.config = config;
  plan.pooling = std::move(pooling);
  if (config.profile_ops) plan.op_times = std::make_shared<OpTimes>();
  if (IsEncoder(model.architecture)) {
    // Each token attends to later ones, so a text is computed as a whole and shares no prefix.
    plan.config.enable_chunked_prefill = plan.config.enable_prefix_caching = false;
  }
  plan.memory = memory;
  if (device != nullptr) {
    plan.device_name = device->name;
    plan.device = *device;
  }
  ASSIGN_OR_RETURN(plan.dtype, PlanDtype(config, model, plan.on_device(), plan.notes));
  ASSIGN_OR_RETURN(plan.kv_type,
                   PlanKvType(config, plan.dtype, model, plan.on_device(), plan.notes));
  if (plan.on_device()) {
    RETURN_IF_ERROR(CheckDeviceTypes(plan));
  }
  RETURN_IF_ERROR(PlanThreads(topology, plan));
  if (IsEncoder(model.architecture)) RETURN_IF_ERROR(TakeOneRank("an encoder", plan));
  RETURN_IF_ERROR(PlanAdapters(model, plan));
  ASSIGN_OR_RETURN(plan.ranks, RanksFor(model, topology, plan));
  plan.num_threads = plan.ranks.num_threads();
  if (!plan.ranks.note.empty())
    (plan.ranks.fewer ? plan.warnings : plan.notes).push_back(plan.ranks.note);
  RETURN_IF_ERROR(PlanEngines(plan));
  RETURN_IF_ERROR(PlanStep(model, plan));
  PlanImages(tower, plan);
  PlanPromptRows(model, plan);
  PlanRecording(plan);
  if (draft != nullptr && !plan.pooling)
    RETURN_IF_ERROR(PlanDraft(model, *draft, std::move(head), plan));
  int64_t longest = model.max_position_embeddings;
  if (plan.pooling) {
    RETURN_IF_ERROR(PlanPooling(plan));
    longest = std::min(longest, plan.pooling->max_tokens.value_or(longest));
  }
  plan.max_model_len = config.max_model_len.value_or(longest);
  if (config.max_model_len && *config.max_model_len > model.max_position_embeddings) {
    return Invalid("max_model_len", fmt::format("max_model_len ({}) is larger than {}, the model's "
                                                "maximum number of positions. Lower max_model_len",
                                                *config.max_model_len, PositionsText(model)));
  }
  if (plan.max_model_len < 2)
    return Invalid("max_model_len", "max_model_len must be at least 2: a prompt and an answer");
  RETURN_IF_ERROR(PlanBytes(model, plan_model, plan));
  plan.tensor_ranks = plan.ranks.tensor_size;
  plan.pipeline_stages = plan.ranks.num_stages;
  RETURN_IF_ERROR(PlanTiers(model, host, plan));
  RETURN_IF_ERROR(PlanCache(model, plan_model, host, plan));
  return plan;
}

}  // namespace sluice
