// Engine::Create: from a configuration to a running engine.
#include <algorithm>
#include <memory>
#include <system_error>

#include "base/log.h"
#include "device/device.h"
#include "device/device_bytes.h"
#include "device/device_pool.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "engine/process_ranks.h"
#include "engine/replica_engine.h"
#include "engine/warm_up.h"
#include "hardware/memory.h"
#include "hardware/topology.h"
#include "kernels/cuda/tactic_cache.h"
#include "kernels/dispatch.h"
#include "models/dense_layers.h"
#include "models/device/device_model.h"
#include "models/parallel_model.h"
#include "models/workspace.h"

namespace sluice {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

// The first devices of a kind, one a rank. They are alike: ranks compute with the same kernels.
Result<Devices> OpenDevices(DeviceKind kind, int count) {
  Devices devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto device = OpenDevice(kind, ordinal);
    if (!device && device.error().code == ErrorCode::kNotFound && ordinal > 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor_parallel_size times pipeline_parallel_size make {} ranks, "
                              "which take a device each: {}",
                              count, device.error().message),
                  "tensor_parallel_size");
    }
    if (!device) return tl::unexpected<Error>(std::move(device).error());
    const DeviceInfo& info = (*device)->info();
    if (ordinal > 0 && info.compute_capability() != devices.front()->info().compute_capability()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("device 0 ({}) and device {} ({}) are of unlike compute capability: "
                              "ranks need devices that are alike; choose some with "
                              "CUDA_VISIBLE_DEVICES",
                              devices.front()->info().name, ordinal, info.name),
                  "tensor_parallel_size");
    }
    devices.push_back(*std::move(device));
  }
  return devices;
}

// None: the CPU.
Result<Devices> ChooseDevices(const EngineConfig& config) {
  const int64_t asked = int64_t{std::max(1, config.tensor_parallel_size)} *
                        std::max(1, config.pipeline_parallel_size);
  // More are refused where ranks are planned.
  const int count = static_cast<int>(std::min<int64_t>(asked, kMostRanks));
  switch (config.device) {
    case DeviceChoice::kCpu: return Devices();
    case DeviceChoice::kEmulated: return OpenDevices(DeviceKind::kEmulated, count);
    case DeviceChoice::kCuda: return OpenDevices(DeviceKind::kCuda, count);
    case DeviceChoice::kAuto: break;
  }
  if (!BuiltWithCuda()) return Devices();
  const auto devices = ListCudaDevices();
  if (devices) return OpenDevices(DeviceKind::kCuda, count);
  LOG_WARNING("engine", "computing on the CPU: {}", devices.error().message);
  return Devices();
}

// Of the device that has least.
Result<MemoryLimits> MemoryOf(const Devices& devices) {
  MemoryLimits least;
  for (const std::unique_ptr<Device>& device : devices) {
    ASSIGN_OR_RETURN(const int64_t free_bytes, device->FreeBytes());
    const bool is_first = device == devices.front();
    const int64_t total_bytes = device->info().total_bytes;
    least.total_bytes = is_first ? total_bytes : std::min(least.total_bytes, total_bytes);
    least.available_bytes = is_first ? free_bytes : std::min(least.available_bytes, free_bytes);
  }
  return least;
}

Result<std::unique_ptr<ThreadPool>> StartThreads(const RankThreads& threads) {
  const int num_threads = threads.num_threads;
  try {
    return std::make_unique<ThreadPool>(num_threads, threads.cpus);
  } catch (const std::system_error& error) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("the system refuses {} threads ({}): lower threads, or raise the "
                            "limit of this process (ulimit -u, or its control group's pids.max)",
                            num_threads, error.what()),
                "threads");
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

EngineInfo InfoOf(const EnginePlan& plan, const ModelConfig& model,
                  const GenerationConfig& generation, const Device* device) {
  EngineInfo info;
  info.model = model;
  info.generation = generation;
  info.pooling = plan.pooling;
  info.end_tokens = EndTokens(model, generation);
  info.max_model_len = plan.max_model_len;
  info.max_num_seqs = plan.scheduler.max_num_seqs;
  info.num_speculative_tokens =
      std::max(plan.config.speculation.num_tokens, plan.config.draft.num_tokens);
  info.max_num_batched_tokens = plan.scheduler.max_num_batched_tokens;
  info.num_engines = plan.num_engines;
  info.first_engine = plan.config.first_engine;
  info.num_blocks = plan.num_blocks;
  info.block_size = plan.scheduler.block_size;
  info.kv_tokens = plan.kv_tokens();
  info.weight_bytes = plan.weight_bytes;
  info.token_weight_bytes = plan.token_weight_bytes;
  info.workspace_bytes = plan.workspace_bytes;
  info.kv_bytes = plan.kv_bytes / plan.num_engines;
  info.request_memory_bytes = plan.request_bytes;
  info.dtype = plan.dtype;
  info.kv_cache_dtype = plan.kv_type;
  info.isa = kernels::IsaName(kernels::CurrentIsa());
  info.num_threads = plan.num_threads;
  info.tensor_ranks = plan.ranks.tensor_size;
  info.pipeline_stages = plan.ranks.num_stages;
  if (device != nullptr) {
    info.device = device->info().kind;
    info.isa = device->info().name;
  }
  return info;
}

EngineObserver* ObserverOf(const Engine::Hooks& hooks, int engine) {
  return hooks.observer_of ? hooks.observer_of(engine) : hooks.observer;
}

ModelOptions DeviceModelOptionsOf(const EnginePlan& plan, const Device& device) {
  ModelOptions options = ModelOptionsOf(plan);
  if (device.info().kind == DeviceKind::kCuda)
    options.linear_tactics = device::DefaultTacticsPath();
  return options;
}

// Allocates the plan's memory on the device, then loads the model into it.
Status LoadOnDevice(const EnginePlan& plan, const ModelConfig& model,
                    const kernels::KvLayout& layout, const LoadProgress& progress,
                    EngineLoop::Parts& parts) {
  Device& device = *parts.devices.front();
  ASSIGN_OR_RETURN(
      DevicePool pool,
      DevicePool::Allocate(
          device,
          DevicePool::Padded(plan.weight_bytes) + DevicePool::Padded(plan.workspace_bytes) +
              DevicePool::Padded(plan.adapter_bytes) + DevicePool::Padded(plan.kv_bytes),
          "weights, workspace and KV cache"));
  parts.device_pool = std::make_unique<DevicePool>(std::move(pool));
  ASSIGN_OR_RETURN(parts.model, LoadDeviceModel(device, *parts.device_pool, *parts.pool,
                                                plan.config.model_folder, model,
                                                DeviceModelOptionsOf(plan, device), progress));
  ASSIGN_OR_RETURN(void* const memory, parts.device_pool->Take(plan.kv_bytes, "the KV cache"));
  parts.cache =
      std::make_unique<KvCache>(KvCache::Wrap(layout, plan.kv_groups, plan.num_blocks, memory));
  return {};
}

Status WarmUpDevices(const EnginePlan& plan, EngineLoop::Parts& parts) {
  const DeviceInfo& info = parts.devices.front()->info();
  // The emulator loads no kernels, and is slow.
  const bool is_emulated = info.kind == DeviceKind::kEmulated;
  const WarmUpLimits most = is_emulated
                                ? WarmUpLimits{.max_rows = 2, .max_slices = 1, .max_context = 32}
                                : WarmUpLimits{};
  RETURN_IF_ERROR(
      WarmUp(*parts.model, *parts.pool, *parts.cache,
             {.max_rows = std::min(most.max_rows, plan.scheduler.max_num_batched_tokens),
              .max_slices = std::min(most.max_slices, plan.scheduler.max_num_seqs),
              .max_context = std::min(most.max_context, plan.max_model_len)}));
  RecordedSteps recorded = plan.recorded;
  recorded.runs_before = !is_emulated;
  RETURN_IF_ERROR(parts.model->RecordSteps(recorded, *parts.cache));
  for (const std::unique_ptr<Device>& device : parts.devices) {
    ASSIGN_OR_RETURN(const int64_t free_bytes, device->FreeBytes());
    LOG_INFO("engine", "of {}'s memory {} stay free", device->info().name,
             DeviceBytesText(free_bytes));
  }
  return {};
}

Status AllocateCache(const EnginePlan& plan, const kernels::KvLayout& layout,
                     EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(KvCache cache, KvCache::Allocate(layout, plan.kv_groups, plan.num_blocks));
  cache.Warm(*parts.pool);
  parts.cache = std::make_unique<KvCache>(std::move(cache));
  return {};
}

// On the CPU, by one rank.
Status LoadAlone(const EnginePlan& plan, const ModelConfig& model, const kernels::KvLayout& layout,
                 const LoadProgress& progress, EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(parts.model, LoadModel(*parts.pool, plan.config.model_folder, model,
                                          ModelOptionsOf(plan), progress));
  return AllocateCache(plan, layout, parts);
}

// The model that proposes tokens, whose steps run on the threads of the first rank.
Status LoadDraft(const EnginePlan& plan, ThreadPool& pool, std::unique_ptr<Model>& draft) {
  if (!plan.draft) return {};
  const std::filesystem::path& folder = plan.config.draft.folder;
  auto loaded = LoadModel(pool, folder, plan.draft->model, plan.draft->options);
  if (!loaded) {
    return tl::unexpected(
        std::move(loaded).error().In(fmt::format("the draft model in {}", folder.string())));
  }
  draft = *std::move(loaded);
  return {};
}

// Those that the server starts with; null where none are served.
Result<std::shared_ptr<Adapters>> LoadAdapters(const EnginePlan& plan, Model& model) {
  std::shared_ptr<LoraStore> slots = model.lora();
  if (slots == nullptr) return nullptr;
  const AdapterSettings& settings = plan.config.adapters;
  auto adapters = std::make_shared<Adapters>(std::move(slots), settings.max_loras);
  for (const AdapterSource& source : settings.modules) {
    const Status added = adapters->Add(source, /*replace=*/false);
    if (added) continue;
    Error error = added.error();
    error.param = "lora_modules";
    return tl::unexpected(std::move(error).In(fmt::format("LoRA adapter '{}'", source.name)));
  }
  return adapters;
}

ParallelOptions ParallelOptionsOf(const EnginePlan& plan, const Devices& devices) {
  ParallelOptions parallel;
  parallel.tensor_size = plan.ranks.tensor_size;
  parallel.num_stages = plan.ranks.num_stages;
  parallel.threads = plan.ranks.threads;
  parallel.kv_groups = plan.kv_groups;
  parallel.num_blocks = plan.num_blocks;
  parallel.deadline =
      std::chrono::milliseconds(static_cast<int64_t>(1000 * plan.config.loop.watchdog_seconds));
  for (const std::unique_ptr<Device>& device : devices) parallel.devices.push_back(device.get());
  return parallel;
}

// By several ranks, on the CPU or on a device each.
Status LoadRanks(const EnginePlan& plan, const ModelConfig& model, const LoadProgress& progress,
                 EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(
      ParallelShare share,
      LoadParallelModel(*parts.pool, plan.config.model_folder, model,
                        parts.devices.empty() ? ModelOptionsOf(plan)
                                              : DeviceModelOptionsOf(plan, *parts.devices.front()),
                        ParallelOptionsOf(plan, parts.devices), progress));
  parts.model = std::move(share.model);
  parts.cache = std::move(share.cache);
  return {};
}

// None where no draft model is asked for.
Result<std::optional<ModelConfig>> ReadDraftConfig(const DraftConfig& draft) {
  if (!draft.is_given()) return std::optional<ModelConfig>();
  auto read = LoadModelConfig(draft.folder, {}, {.weights = draft.quantization, .head = ""});
  if (read) return std::optional(*std::move(read));
  return tl::unexpected(
      std::move(read).error().In(fmt::format("the draft model in {}", draft.folder.string())));
}

// Null where the vectors of a model that pools stay as they are.
Result<std::shared_ptr<const DenseLayers>> LoadDense(const EnginePlan& plan, ThreadPool& pool) {
  if (!plan.pooling || plan.pooling->dense.empty()) return std::shared_ptr<const DenseLayers>();
  return DenseLayers::Load(pool, plan.config.model_folder, plan.pooling->dense,
                           ModelOptionsOf(plan));
}

void TellPlan(const EnginePlan& plan, const Engine::Hooks& hooks) {
  if (!hooks.print_plan) return;
  for (const std::string& line : MemoryTable(plan)) hooks.print_plan(line);
  for (const std::string& line : plan.warnings) LOG_WARNING("engine", "{}", line);
}

// What one of several engines needs beside the weights of `loaded`.
Status ShareLoaded(const EnginePlan& plan, const Model& loaded, const kernels::KvLayout& layout,
                   const std::vector<RankThreads>& threads, EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(parts.pool, StartThreads(threads.front()));
  if (plan.ranks.num_ranks() == 1) {
    ASSIGN_OR_RETURN(parts.model, loaded.Share(*parts.pool));
    return AllocateCache(plan, layout, parts);
  }
  ParallelOptions parallel = ParallelOptionsOf(plan, {});
  parallel.threads = threads;
  ASSIGN_OR_RETURN(ParallelShare share,
                   ShareParallelModel(loaded, *parts.pool, ModelOptionsOf(plan), parallel));
  parts.model = std::move(share.model);
  parts.cache = std::move(share.cache);
  return {};
}

// Several engines on the CPU. The model is loaded by all threads; the engines share its weights.
Result<std::unique_ptr<Engine>> CreateReplicas(const EnginePlan& plan, const ModelConfig& model,
                                               const kernels::KvLayout& layout,
                                               const EngineInfo& info, const Engine::Hooks& hooks) {
  const int count = plan.num_engines;
  std::vector<EngineLoop::Parts> parts(static_cast<size_t>(count));
  {
    EngineLoop::Parts loaded;
    ASSIGN_OR_RETURN(loaded.pool, StartThreads(plan.ranks.threads.front()));
    EnginePlan loading = plan;
    loading.num_blocks = 1;  // nothing is computed with this one
    RETURN_IF_ERROR(plan.ranks.num_ranks() > 1
                        ? LoadRanks(loading, model, hooks.load_progress, loaded)
                        : LoadAlone(loading, model, layout, hooks.load_progress, loaded));
    RETURN_IF_ERROR(LoadDraft(plan, *loaded.pool, loaded.draft));
    for (int i = 0; i < count; ++i) {
      EngineLoop::Parts& own = parts[static_cast<size_t>(i)];
      RETURN_IF_ERROR(
          ShareLoaded(plan, *loaded.model, layout, ThreadsOfEngine(plan.ranks, i, count), own));
      if (loaded.draft != nullptr) {
        ASSIGN_OR_RETURN(own.draft, loaded.draft->Share(*own.pool));
      }
    }
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Adapters> adapters,
                   LoadAdapters(plan, *parts.front().model));
  ASSIGN_OR_RETURN(const std::shared_ptr<const DenseLayers> dense,
                   LoadDense(plan, *parts.front().pool));
  for (EngineLoop::Parts& mine : parts) {
    mine.adapters = adapters;
    mine.dense = dense;
  }
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(engines.emplace_back(),
                     EngineLoop::Start(std::move(parts[static_cast<size_t>(i)]), info, plan,
                                       ObserverOf(hooks, i)));
  }
  return std::make_unique<ReplicaEngine>(std::move(engines), info, plan.config.seed,
                                         plan.config.enable_prefix_caching);
}

// This process is rank 0 of several.
Result<std::unique_ptr<Engine>> CreateOnProcesses(const EngineConfig& config,
                                                  const ModelConfig& model,
                                                  const GenerationConfig& generation,
                                                  const std::optional<PoolingConfig>& pooling,
                                                  const Engine::Hooks& hooks) {
  if (config.device == DeviceChoice::kCuda || config.device == DeviceChoice::kEmulated) {
    return Fail(ErrorCode::kUnsupported,
                "ranks that are processes compute on CPUs: say --device cpu", "device");
  }
  if (config.data_parallel_size > 1) {
    return Fail(ErrorCode::kUnsupported,
                "ranks that are processes make one engine: leave data_parallel_size out, and run "
                "several servers behind a balancer",
                "data_parallel_size");
  }
  if (config.draft.is_given()) {
    return Fail(ErrorCode::kUnsupported,
                "a draft model proposes within one process, not yet before ranks that are "
                "processes: use method ngram or suffix, or leave the ranks out",
                "speculative_config");
  }
  ASSIGN_OR_RETURN(EnginePlan plan, PlanTogether(*hooks.processes, config, model, pooling));
  TellPlan(plan, hooks);
  EngineLoop::Parts parts;
  ASSIGN_OR_RETURN(parts.pool, StartThreads(plan.ranks.threads.front()));
  EngineInfo info = InfoOf(plan, model, generation, nullptr);
  info.tensor_ranks = hooks.processes->tensor_size;
  info.pipeline_stages = hooks.processes->num_stages;
  ASSIGN_OR_RETURN(const auto process,
                   LoadProcess(*hooks.processes, *parts.pool, plan, model, hooks.load_progress));
  ParallelShare lead = process->TakeLead();
  parts.model = std::move(lead.model);
  parts.cache = std::move(lead.cache);
  ASSIGN_OR_RETURN(parts.adapters, LoadAdapters(plan, *parts.model));
  ASSIGN_OR_RETURN(parts.dense, LoadDense(plan, *parts.pool));
  return EngineLoop::Start(std::move(parts), std::move(info), std::move(plan),
                           ObserverOf(hooks, 0));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config, Hooks hooks) {
  RETURN_IF_ERROR(kernels::SelectIsa(config.cpu_isa ? kernels::IsaName(*config.cpu_isa) : "auto"));
  ASSIGN_OR_RETURN(
      ModelConfig model_config,
      LoadModelConfig(config.model_folder, config.config_overrides, config.load_quantization));
  ASSIGN_OR_RETURN(std::optional<PoolingConfig> pooling,
                   ResolvePooling(config.pooling, config.model_folder, model_config));
  ASSIGN_OR_RETURN(const GenerationConfig generation,
                   LoadGenerationConfig(config.GenerationConfigFolder()));
  if (hooks.processes != nullptr)
    return CreateOnProcesses(config, model_config, generation, pooling, hooks);
  EngineLoop::Parts parts;
  ASSIGN_OR_RETURN(parts.devices, ChooseDevices(config));
  const Device* const device = parts.devices.empty() ? nullptr : parts.devices.front().get();
  if (device != nullptr && !config.load_quantization.head.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "--head-format: devices hold the head as it is stored; leave the option out, or "
                "serve with --device cpu",
                "head-format");
  }
  if (!config.load_quantization.empty())
    LOG_INFO("models", "weights: {}", model_config.scheme->Name());
  ASSIGN_OR_RETURN(const std::optional<ModelConfig> draft, ReadDraftConfig(config.draft));
  const MemoryLimits host = ReadMemoryLimits();
  MemoryLimits memory = host;
  PlanModelFunction plan_model = PlanModel;
  if (device != nullptr) {
    ASSIGN_OR_RETURN(memory, MemoryOf(parts.devices));
    plan_model = [device, &config](const ModelConfig& model, const ModelOptions& options, int) {
      return PlanDeviceRanks(model, options, device->info(), config.tensor_parallel_size,
                             config.pipeline_parallel_size);
    };
  }
  ASSIGN_OR_RETURN(EnginePlan plan,
                   PlanEngine(config, model_config, memory, DetectTopology(), plan_model,
                              device != nullptr ? &device->info() : nullptr, host,
                              std::move(pooling), draft ? &*draft : nullptr));
  TellPlan(plan, hooks);

  const kernels::KvLayout layout = KvLayoutOf(model_config, ModelOptionsOf(plan));
  EngineInfo info = InfoOf(plan, model_config, generation, device);
  if (plan.num_engines > 1) return CreateReplicas(plan, model_config, layout, info, hooks);

  // Not pinned but to the node of a rank: the server's threads use the same cores, and the system's
  // scheduler places the workers better around them.
  ASSIGN_OR_RETURN(parts.pool, StartThreads(plan.ranks.threads.front()));
  const LoadProgress progress = std::move(hooks.load_progress);
  if (plan.ranks.num_ranks() > 1) {
    RETURN_IF_ERROR(LoadRanks(plan, model_config, progress, parts));
  } else if (device != nullptr) {
    RETURN_IF_ERROR(LoadOnDevice(plan, model_config, layout, progress, parts));
  } else {
    RETURN_IF_ERROR(LoadAlone(plan, model_config, layout, progress, parts));
  }
  RETURN_IF_ERROR(LoadDraft(plan, *parts.pool, parts.draft));
  ASSIGN_OR_RETURN(parts.adapters, LoadAdapters(plan, *parts.model));
  ASSIGN_OR_RETURN(parts.dense, LoadDense(plan, *parts.pool));
  if (device != nullptr) RETURN_IF_ERROR(WarmUpDevices(plan, parts));
  return EngineLoop::Start(std::move(parts), std::move(info), std::move(plan),
                           ObserverOf(hooks, 0));
}

}  // namespace sluice
