// Engine::Create: from options to a running engine.
#include <algorithm>
#include <memory>

#include "base/log.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "hardware/memory.h"
#include "hardware/topology.h"
#include "kernels/dispatch.h"

namespace sluice {
namespace {

// Writes to the pages of the first blocks, on all threads, so that the first requests do not wait
// for the machine to hand out memory. The other pages are reserved and come when the cache first
// grows into them: taking gigabytes at once was measured to cost up to minutes on virtual machines,
// for a cache that a small model may never fill.
void WarmCache(ThreadPool& pool, const KvCache& cache) {
  constexpr int64_t kWarmBytes = int64_t{128} << 20;
  constexpr int64_t kPageBytes = 4096;
  const auto num_slots = static_cast<int64_t>(cache.slots().size());
  for (const kernels::KvCacheView& view : cache.slots()) {
    const int64_t half_bytes =
        cache.num_blocks() * view.layout.BlockElements() * BitsPerElement(view.layout.type) / 8;
    const int64_t bytes = std::min(half_bytes, kWarmBytes / (2 * num_slots));
    for (void* half : {view.k, view.v}) {
      auto* const memory = static_cast<volatile char*>(half);
      pool.ParallelFor(bytes, int64_t{2} << 20, [memory](int64_t begin, int64_t end) {
        for (int64_t byte = begin; byte < end; byte += kPageBytes) memory[byte] = 0;
      });
    }
  }
}

std::vector<int32_t> EndTokens(const ModelConfig& model, const GenerationConfig& generation) {
  std::vector<int32_t> ids = model.eos_token_ids;
  ids.insert(ids.end(), generation.eos_token_ids.begin(), generation.eos_token_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= model.vocab_size; });
  return ids;
}

EngineInfo InfoOf(const EnginePlan& plan, const EngineConfig& config, const ModelConfig& model,
                  const GenerationConfig& generation) {
  EngineInfo info;
  info.model = model;
  info.generation = generation;
  info.max_model_len = plan.max_model_len;
  info.max_num_seqs = plan.max_num_seqs;
  info.max_num_batched_tokens = plan.max_num_batched_tokens;
  info.num_blocks = plan.num_blocks;
  info.block_size = config.block_size;
  info.kv_tokens = plan.KvTokens(config.block_size);
  info.weight_bytes = plan.weight_bytes;
  info.token_weight_bytes = plan.token_weight_bytes;
  info.workspace_bytes = plan.workspace_bytes;
  info.kv_bytes = plan.kv_bytes;
  info.dtype = plan.dtype == ElementType::kF32 ? "float32" : "bfloat16";
  info.kv_cache_dtype = KvTypeName(plan.kv_type);
  info.isa = kernels::IsaName(kernels::CurrentIsa());
  info.num_threads = plan.num_threads;
  return info;
}

CoreOptions CoreOptionsOf(const EnginePlan& plan, const EngineConfig& config) {
  CoreOptions options;
  options.limits.block_size = config.block_size;
  options.limits.max_num_batched_tokens = plan.max_num_batched_tokens;
  options.limits.max_num_seqs = plan.max_num_seqs;
  options.limits.max_prompt_logit_rows = plan.max_prompt_logit_rows;
  options.limits.chunked_prefill = config.enable_chunked_prefill;
  options.limits.long_prefill_token_threshold = config.long_prefill_token_threshold;
  options.limits.priority_policy = config.priority_scheduling;
  options.limits.groups = plan.CacheGroups();
  options.num_blocks = plan.num_blocks;
  options.enable_prefix_caching = config.enable_prefix_caching;
  return options;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config, Hooks hooks) {
  if (config.device != "auto" && config.device != "cpu") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("--device {}: this program computes on the CPU; say --device cpu, or "
                            "leave it out",
                            config.device),
                "device");
  }
  RETURN_IF_ERROR(kernels::SelectIsa(config.cpu_isa));
  ASSIGN_OR_RETURN(const ModelConfig model_config, LoadModelConfig(config.model_folder));
  ASSIGN_OR_RETURN(const GenerationConfig generation, LoadGenerationConfig(config.model_folder));
  ASSIGN_OR_RETURN(const EnginePlan plan, PlanEngine(config, model_config, ReadMemoryLimits(),
                                                     DetectTopology(), PlanModel));
  if (hooks.print_plan) {
    for (const std::string& line : MemoryTable(plan, config.block_size)) hooks.print_plan(line);
  }

  EngineLoop::Parts parts;
  // Not pinned: the threads of the server share these cores, and the kernel places the workers
  // better around them.
  parts.pool = std::make_unique<ThreadPool>(plan.num_threads);
  ASSIGN_OR_RETURN(
      parts.model,
      LoadModel(*parts.pool, config.model_folder, model_config, ModelOptionsOf(plan, config),
                hooks.load_progress ? hooks.load_progress : LoadProgress()));
  kernels::KvLayout layout;
  layout.num_kv_heads = static_cast<int>(model_config.num_key_value_heads);
  layout.head_dim = static_cast<int>(model_config.head_dim);
  layout.block_size = config.block_size;
  layout.type = plan.kv_type;
  ASSIGN_OR_RETURN(KvCache cache, KvCache::Allocate(layout, plan.kv_groups, plan.num_blocks));
  WarmCache(*parts.pool, cache);
  parts.cache = std::make_unique<KvCache>(std::move(cache));

  CoreOptions core_options = CoreOptionsOf(plan, config);
  core_options.eos_token_ids = EndTokens(model_config, generation);
  LoopOptions loop_options;
  loop_options.drain_seconds = config.drain_seconds;
  loop_options.seed = config.seed;
  return EngineLoop::Start(std::move(parts), InfoOf(plan, config, model_config, generation),
                           core_options, std::move(loop_options), hooks.observer);
}

}  // namespace sluice
