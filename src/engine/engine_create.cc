// Engine::Create: makes a running engine from a configuration.
#include <algorithm>
#include <memory>
#include <span>

#include "base/log.h"
#include "device/device.h"
#include "device/device_bytes.h"
#include "device/device_pool.h"
#include "device/eager_kernels.h"
#include "device/integrated_gpu.h"
#include "device/stand_in.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "engine/kv_tiers.h"
#include "engine/plan_draft.h"
#include "engine/plan_tower.h"
#include "engine/process_ranks.h"
#include "engine/replica_engine.h"
#include "engine/shared_drafts.h"
#include "engine/shared_memory.h"
#include "engine/simulated_engine.h"
#include "engine/warm_up.h"
#include "engine/weight_loads.h"
#include "hardware/memory.h"
#include "hardware/topology.h"
#include "kernels/cuda/tactic_cache.h"
#include "kernels/dispatch.h"
#include "models/dense_layers.h"
#include "models/device/device_model.h"
#include "models/device/peer_exchange.h"
#include "models/drafter.h"
#include "models/kv_layout.h"
#include "models/parallel_model.h"

namespace sluice {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

// Opens the first `count` devices of a kind, one per rank. All must have the same compute
// capability, because all ranks use the same kernels.
Result<Devices> OpenDevices(DeviceKind kind, int count) {
  Devices devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto device = OpenDevice(kind, ordinal);
    if (!device && device.error().code == ErrorCode::kNotFound && ordinal > 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor_parallel_size times pipeline_parallel_size make {} ranks, "
                              "each of which needs a device: {}",
                              count, device.error().message),
                  "tensor_parallel_size");
    }
    if (!device) return tl::unexpected<Error>(std::move(device).error());
    const DeviceInfo& info = (*device)->info();
    if (ordinal > 0 && info.compute_capability() != devices.front()->info().compute_capability()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("device 0 ({}) and device {} ({}) have different compute "
                              "capabilities: ranks need devices of one kind; select them with "
                              "{}_VISIBLE_DEVICES",
                              devices.front()->info().name, ordinal, info.name,
                              kind == DeviceKind::kHip ? "HIP" : "CUDA"),
                  "tensor_parallel_size");
    }
    devices.push_back(*std::move(device));
  }
  return devices;
}

// The devices to compute on; empty: the CPU.
Result<Devices> ChooseDevices(const EngineConfig& config) {
  const int64_t asked = int64_t{std::max(1, config.tensor_parallel_size)} *
                        std::max(1, config.pipeline_parallel_size);
  // A larger number is refused by the rank plan.
  const int count = static_cast<int>(std::min<int64_t>(asked, kMostRanks));
  if (count > 1 && BuiltWithCuda()) LoadKernelsEagerly();
  switch (config.device) {
    case DeviceChoice::kCpu: return Devices();
    case DeviceChoice::kEmulated: return OpenDevices(DeviceKind::kEmulated, count);
    case DeviceChoice::kCuda: return OpenDevices(DeviceKind::kCuda, count);
    case DeviceChoice::kHip: return OpenDevices(DeviceKind::kHip, count);
    case DeviceChoice::kAuto: break;
  }
  std::string reason;
  if (BuiltWithCuda()) {
    const auto devices = ListCudaDevices();
    if (devices) return OpenDevices(DeviceKind::kCuda, count);
    reason = devices.error().message;
  }
  if (BuiltWithHip()) {
    const auto devices = ListHipDevices();
    if (devices) return OpenDevices(DeviceKind::kHip, count);
    reason += (reason.empty() ? "" : "; ") + devices.error().message;
  }
  if (!reason.empty()) LOG_WARNING("engine", "computing on the CPU: {}", reason);
  return Devices();
}

// Whether ranks gather only by NCCL: because the user requested it, or because devices that share
// layers cannot access each other's memory.
bool ExchangesByNccl(const EngineConfig& config, const Devices& devices) {
  const auto tensor_size = static_cast<size_t>(std::max(1, config.tensor_parallel_size));
  if (config.exchanges_by_nccl || tensor_size == 1) return config.exchanges_by_nccl;
  std::vector<Device*> all;
  for (const std::unique_ptr<Device>& device : devices) all.push_back(device.get());
  for (size_t first = 0; first + tensor_size <= all.size(); first += tensor_size) {
    if (LetAddressEachOther(std::span(all).subspan(first, tensor_size))) continue;
    LOG_INFO("engine",
             "not all {} devices can access each other's memory: exchanges use NCCL, and steps are "
             "launched kernel by kernel",
             all.size());
    return true;
  }
  return false;
}

// Returns the smallest total and free memory of any of the devices. `host`: the memory of their
// machine.
Result<MemoryLimits> MemoryOf(const Devices& devices, const MemoryLimits& host) {
  const DeviceInfo& first = devices.front()->info();
  if (IsIntegratedGpu(first)) return SharedMemory(first.total_bytes, host);
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
  info.takes_images = plan.tower.has_value();
  info.no_images = plan.no_images;
  info.max_image_rows = info.takes_images ? plan.image_rows : 0;
  info.prompt_row_width = plan.no_prompt_rows.empty() ? model.spec.hidden_size : 0;
  info.no_prompt_rows = plan.no_prompt_rows;
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
  info.op_times = plan.op_times;
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

// Adds the journal and the listener of this process's i-th engine; null if there is none.
Status AddListener(const EngineConfig& config, const Engine::Hooks& hooks, int engine,
                   EngineLoop::Parts& parts) {
  if (hooks.journal_of) parts.journal = hooks.journal_of(engine);
  if (!hooks.listener_of) return {};
  ASSIGN_OR_RETURN(parts.listener, hooks.listener_of(config.first_engine + engine));
  return {};
}

EngineObserver* ObserverOf(const Engine::Hooks& hooks, int engine) {
  return hooks.observer_of ? hooks.observer_of(engine) : hooks.observer;
}

ModelOptions DeviceModelOptionsOf(const EnginePlan& plan, const Device& device) {
  ModelOptions options = ModelOptionsOf(plan);
  if (IsGpu(device.info().kind)) options.linear_tactics = device::DefaultTacticsPath();
  return options;
}

// The memory of a drafting head on the device.
int64_t DraftBytesOnDevice(const EnginePlan& plan) {
  if (!plan.draft) return 0;
  const DraftPlan& draft = *plan.draft;
  return DevicePool::Padded(draft.weight_bytes) + DevicePool::Padded(draft.workspace_bytes) +
         DevicePool::Padded(draft.kv_bytes);
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
              DevicePool::Padded(plan.adapter_bytes) + DevicePool::Padded(plan.kv_bytes) +
              DevicePool::Padded(plan.state_bytes) + DraftBytesOnDevice(plan),
          "weights, workspace and KV cache"));
  parts.device_pool = std::make_unique<DevicePool>(std::move(pool));
  ASSIGN_OR_RETURN(parts.model, LoadDeviceModel(device, *parts.device_pool, *parts.pool,
                                                plan.config.model_folder, model,
                                                DeviceModelOptionsOf(plan, device), progress));
  ASSIGN_OR_RETURN(void* const memory, parts.device_pool->Take(plan.kv_bytes, "the KV cache"));
  parts.cache =
      std::make_unique<KvCache>(KvCache::Wrap(layout, plan.kv_groups, plan.num_blocks, memory));
  if (plan.state_bytes == 0) return {};
  ASSIGN_OR_RETURN(void* const states,
                   parts.device_pool->Take(plan.state_bytes, "the states of sequences"));
  parts.cache->WrapStates(StateLayout::For(model.spec), plan.num_state_slots, states);
  return {};
}

Status WarmUpDevices(const EnginePlan& plan, EngineLoop::Parts& parts) {
  const DeviceInfo& info = parts.devices.front()->info();
  // The emulator loads no kernels, and it is slow.
  const bool is_emulated = RunsOnCpu(info);
  const WarmUpLimits most = is_emulated
                                ? WarmUpLimits{.max_rows = 2, .max_slices = 1, .max_context = 32}
                                : WarmUpLimits{};
  RETURN_IF_ERROR(
      WarmUp(*parts.model, *parts.pool, *parts.cache,
             {.max_rows = std::min(most.max_rows, plan.scheduler.max_num_batched_tokens),
              .max_slices = std::min(most.max_slices, plan.scheduler.max_num_seqs),
              .max_context = std::min(most.max_context, plan.max_model_len)}));
  RETURN_IF_ERROR(parts.model->RecordSteps(plan.recorded, *parts.cache));
  for (const std::unique_ptr<Device>& device : parts.devices) {
    ASSIGN_OR_RETURN(const int64_t free_bytes, device->FreeBytes());
    LOG_INFO("engine", "of {}'s memory, {} remain free", device->info().name,
             DeviceBytesText(free_bytes));
  }
  return {};
}

Status AllocateCache(const EnginePlan& plan, const ModelConfig& model,
                     const kernels::KvLayout& layout, EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(KvCache cache, KvCache::Allocate(layout, plan.kv_groups, plan.num_blocks));
  RETURN_IF_ERROR(cache.AllocateStates(StateLayout::For(model.spec), plan.num_state_slots));
  cache.Warm(*parts.pool);
  parts.cache = std::make_unique<KvCache>(std::move(cache));
  return {};
}

// Loads the model for a single rank on the CPU.
Status LoadAlone(const EnginePlan& plan, const ModelConfig& model, const LoadProgress& progress,
                 EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(parts.model, LoadModel(*parts.pool, plan.config.model_folder, model,
                                          ModelOptionsOf(plan), progress));
  return {};
}

// Loads the model that proposes tokens; its steps use the threads of the first rank.
Status LoadDraft(const EnginePlan& plan, ThreadPool& pool, const Model& target,
                 std::unique_ptr<Model>& draft) {
  if (!plan.draft) return {};
  const DraftConfig& asked = plan.config.draft;
  const std::filesystem::path& folder = asked.is_mtp() ? plan.config.model_folder : asked.folder;
  auto loaded = asked.is_head() ? LoadDrafter(pool, folder, plan.draft->model, plan.draft->options,
                                              target, plan.config.model_folder)
                                : LoadSharedDraft(pool, folder, plan.draft->model,
                                                  plan.draft->options, asked.quantization);
  if (!loaded) return tl::unexpected(std::move(loaded).error().In(DrafterName(asked)));
  draft = *std::move(loaded);
  return {};
}

// Like LoadDraft, for a drafting head on the model's device.
Status LoadDraftOnDevice(const EnginePlan& plan, EngineLoop::Parts& parts) {
  const DraftConfig& asked = plan.config.draft;
  const std::filesystem::path& folder = asked.is_mtp() ? plan.config.model_folder : asked.folder;
  Device& device = *parts.devices.front();
  ModelOptions options = plan.draft->options;
  if (IsGpu(device.info().kind)) options.linear_tactics = device::DefaultTacticsPath();
  auto loaded = LoadDeviceDrafter(device, *parts.device_pool, *parts.pool, folder,
                                  plan.draft->model, options, *parts.model);
  if (!loaded) return tl::unexpected(std::move(loaded).error().In(DrafterName(asked)));
  parts.draft = *std::move(loaded);
  ASSIGN_OR_RETURN(parts.draft_cache,
                   parts.device_pool->Take(plan.draft->kv_bytes, "the drafting head's KV cache"));
  return {};
}

// Loads the tower onto the model's device.
Status LoadDeviceTower(const EnginePlan& plan, const ModelConfig& model, EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(parts.tower, ImageTower::LoadOnDevice(*parts.devices.front(), *parts.device_pool,
                                                         parts.model->device_images(), *parts.pool,
                                                         plan.config.model_folder, *plan.tower,
                                                         *model.scheme, plan.tower_options));
  return {};
}

// Loads the tower; null if prompts may not hold images.
Status LoadTower(const EnginePlan& plan, const ModelConfig& model, ThreadPool& pool,
                 std::unique_ptr<ImageTower>& tower) {
  if (!plan.tower) return {};
  if (plan.on_device()) LOG_INFO("engine", "images are embedded on the CPU: {}", plan.tower_on_cpu);
  ASSIGN_OR_RETURN(tower, ImageTower::Load(pool, plan.config.model_folder, *plan.tower,
                                           *model.scheme, plan.tower_options));
  return {};
}

// Loads the adapters given at the start; null if none are served.
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
  parallel.moves_blocks = plan.config.offload.is_given();
  return parallel;
}

void TakeShare(ParallelShare share, EngineLoop::Parts& parts) {
  parts.model = std::move(share.model);
  parts.cache = std::move(share.cache);
  parts.stage = share.stage;
  parts.cache_bytes = std::move(share.bytes);
}

// Loads the model for several ranks: on the CPU, or one device per rank.
Status LoadRanks(const EnginePlan& plan, const ModelConfig& model, const LoadProgress& progress,
                 EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(
      ParallelShare share,
      LoadParallelModel(*parts.pool, plan.config.model_folder, model,
                        parts.devices.empty() ? ModelOptionsOf(plan)
                                              : DeviceModelOptionsOf(plan, *parts.devices.front()),
                        ParallelOptionsOf(plan, parts.devices), progress));
  TakeShare(std::move(share), parts);
  return {};
}

// The configuration of the draft model; empty if there is none.
struct ReadDraft {
  std::optional<ModelConfig> model;
  std::shared_ptr<const DrafterSpec> head;  // null: a complete decoder
};
Result<ReadDraft> ReadDraftConfig(const EngineConfig& config, const ModelConfig& target) {
  const DraftConfig& draft = config.draft;
  if (!draft.is_given()) return ReadDraft();
  const LoadQuantization quantization = {.weights = draft.quantization, .head = ""};
  const bool has_weights = !config.dummy_weights;
  if (!draft.is_head()) {
    auto read = LoadModelConfig(draft.folder, {}, quantization);
    if (read) return ReadDraft{*std::move(read), nullptr};
    return tl::unexpected(std::move(read).error().In(DrafterName(draft)));
  }
  const bool is_dflash = draft.kind == DraftConfig::Kind::kDflash;
  auto read =
      draft.is_mtp() ? LoadMtpConfig(target, config.model_folder, has_weights)
      : is_dflash
          ? LoadDflashConfig(draft.folder, target, config.model_folder, quantization, has_weights)
          : LoadEagleConfig(draft.folder, target, config.model_folder, quantization, has_weights);
  if (!read) return tl::unexpected(std::move(read).error().In(DrafterName(draft)));
  return ReadDraft{std::move(read->model),
                   std::make_shared<const DrafterSpec>(std::move(read->head))};
}

// Loads the dense layers after pooling; null if there are none.
Result<std::shared_ptr<const DenseLayers>> LoadDense(const EnginePlan& plan, ThreadPool& pool) {
  if (!plan.pooling || plan.pooling->dense.empty()) return std::shared_ptr<const DenseLayers>();
  return DenseLayers::Load(pool, plan.config.model_folder, plan.pooling->dense,
                           ModelOptionsOf(plan));
}

// Loads the weights of an engine that does not share them; for ranks and devices also allocates the
// cache.
Status LoadWeights(const EnginePlan& plan, const ModelConfig& model,
                   const kernels::KvLayout& layout, const LoadProgress& progress,
                   EngineLoop::Parts& parts) {
  if (plan.ranks.num_ranks() > 1) {
    RETURN_IF_ERROR(LoadRanks(plan, model, progress, parts));
  } else if (!parts.devices.empty()) {
    RETURN_IF_ERROR(LoadOnDevice(plan, model, layout, progress, parts));
  } else {
    RETURN_IF_ERROR(LoadAlone(plan, model, progress, parts));
  }
  RETURN_IF_ERROR(plan.draft && plan.draft->on_device
                      ? LoadDraftOnDevice(plan, parts)
                      : LoadDraft(plan, *parts.pool, *parts.model, parts.draft));
  ASSIGN_OR_RETURN(parts.dense, LoadDense(plan, *parts.pool));
  return {};
}

// Returns functions that reload the parts of an engine with `plan`. REQUIRES: no adapters are
// served.
EngineLoop::Loader LoaderOf(const EnginePlan& plan, const ModelConfig& model,
                            const kernels::KvLayout& layout) {
  const auto of_folder = [plan](const std::filesystem::path& folder) {
    EnginePlan other = plan;
    other.config.model_folder = folder;
    return other;
  };
  const bool on_device = plan.on_device();
  EngineLoop::Loader loader;
  loader.load_weights = [=](const std::filesystem::path& folder,
                            EngineLoop::Parts& parts) -> Status {
    const EnginePlan other = of_folder(folder);
    RETURN_IF_ERROR(LoadWeights(other, model, layout, {}, parts));
    return on_device ? WarmUpDevices(other, parts) : Status();
  };
  loader.load_cache = [=](EngineLoop::Parts& parts) {
    return AllocateCache(plan, model, layout, parts);
  };
  WeightLoads::AddTo(loader, std::make_shared<WeightLoads>(plan, model), /*engine=*/0);
  return loader;
}

// Refuses the options for sleep and for weight updates if weights and cache cannot be released or
// replaced.
Status CheckReloadable(const EngineConfig& config, bool are_processes) {
  if (!config.enable_sleep_mode && !config.enable_weight_updates) return {};
  const char* const option =
      config.enable_sleep_mode ? "enable-sleep-mode" : "weight-transfer-config";
  const auto refuse = [&](const char* what) {
    return Fail(ErrorCode::kUnsupported, fmt::format("--{}: {}", option, what), option);
  };
  if (config.enable_sleep_mode && are_processes)
    return refuse("ranks in separate processes cannot release their memory; omit it");
  if (config.enable_sleep_mode && config.data_parallel_size > 1) {
    return refuse(
        "engines that share weights cannot release their memory; omit --data-parallel-size, and "
        "run several servers behind a load balancer");
  }
  if (config.enable_weight_updates && config.draft.is_given()) {
    return Fail(ErrorCode::kUnsupported,
                "--weight-transfer-config: a draft model or head is made for the weights that it "
                "was loaded with; omit --speculative-config",
                "weight-transfer-config");
  }
  if (config.adapters.enabled)
    return refuse("LoRA adapters need slots in addition to the weights; omit --enable-lora");
  const bool is_on_cpu =
      config.device == DeviceChoice::kCpu ||
      (config.device == DeviceChoice::kAuto && !BuiltWithCuda() && !BuiltWithHip());
  if (config.enable_weight_updates && !is_on_cpu) {
    return Fail(ErrorCode::kUnsupported,
                "--weight-transfer-config: a device's memory is planned for one copy of the "
                "weights, but new weights are loaded in addition to the old ones; use --device cpu",
                "weight-transfer-config");
  }
  return {};
}

void TellPlan(const EnginePlan& plan, const Engine::Hooks& hooks) {
  if (hooks.planned_bytes) hooks.planned_bytes(plan.taken_bytes());
  if (!hooks.print_plan) return;
  for (const std::string& line : MemoryTable(plan)) hooks.print_plan(line);
  for (const std::string& line : plan.warnings) LOG_WARNING("engine", "{}", line);
}

// Makes everything that each of several engines needs besides the weights, which it shares with
// `loaded`.
Status ShareLoaded(const EnginePlan& plan, const Model& loaded, const kernels::KvLayout& layout,
                   const std::vector<RankThreads>& threads, EngineLoop::Parts& parts) {
  ASSIGN_OR_RETURN(parts.pool, StartRankThreads(threads.front()));
  if (plan.ranks.num_ranks() == 1) {
    ASSIGN_OR_RETURN(parts.model, loaded.Share(*parts.pool));
    return AllocateCache(plan, loaded.config(), layout, parts);
  }
  ParallelOptions parallel = ParallelOptionsOf(plan, {});
  parallel.threads = threads;
  ASSIGN_OR_RETURN(ParallelShare share,
                   ShareParallelModel(loaded, *parts.pool, ModelOptionsOf(plan), parallel));
  TakeShare(std::move(share), parts);
  return {};
}

// Creates several engines on the CPU. All threads load the model; the engines share its weights.
Result<std::unique_ptr<Engine>> CreateReplicas(const EnginePlan& plan, const ModelConfig& model,
                                               const kernels::KvLayout& layout,
                                               const EngineInfo& info, const Engine::Hooks& hooks) {
  const int count = plan.num_engines;
  std::vector<EngineLoop::Parts> parts(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    RETURN_IF_ERROR(AddListener(plan.config, hooks, i, parts[static_cast<size_t>(i)]));
  {
    EngineLoop::Parts loaded;
    ASSIGN_OR_RETURN(loaded.pool, StartRankThreads(plan.ranks.threads.front()));
    EnginePlan loading = plan;
    loading.num_blocks = 1;  // no step uses this cache
    RETURN_IF_ERROR(plan.ranks.num_ranks() > 1
                        ? LoadRanks(loading, model, hooks.load_progress, loaded)
                        : LoadAlone(loading, model, hooks.load_progress, loaded));
    RETURN_IF_ERROR(LoadDraft(plan, *loaded.pool, *loaded.model, loaded.draft));
    RETURN_IF_ERROR(LoadTower(plan, model, *loaded.pool, loaded.tower));
    for (int i = 0; i < count; ++i) {
      EngineLoop::Parts& own = parts[static_cast<size_t>(i)];
      RETURN_IF_ERROR(
          ShareLoaded(plan, *loaded.model, layout, ThreadsOfEngine(plan.ranks, i, count), own));
      if (loaded.draft != nullptr) {
        ASSIGN_OR_RETURN(own.draft, loaded.draft->Share(*own.pool));
      }
      if (loaded.tower != nullptr) {
        ASSIGN_OR_RETURN(own.tower, loaded.tower->Share(*own.pool));
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
  ASSIGN_OR_RETURN(const DiskTiers disks, OpenDiskTiers(plan, model));
  for (EngineLoop::Parts& mine : parts) mine.disks = disks;
  const auto loads = std::make_shared<WeightLoads>(plan, model);
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < count; ++i) {
    std::optional<EngineLoop::Loader> loader;
    if (plan.config.enable_weight_updates) WeightLoads::AddTo(loader.emplace(), loads, i);
    ASSIGN_OR_RETURN(engines.emplace_back(),
                     EngineLoop::Start(std::move(parts[static_cast<size_t>(i)]), info, plan,
                                       ObserverOf(hooks, i), std::move(loader)));
  }
  return std::make_unique<ReplicaEngine>(std::move(engines), info, plan.config.seed,
                                         plan.config.enable_prefix_caching);
}

// Starts the engines of a simulation, each on its own simulated devices.
Result<std::unique_ptr<Engine>> StartSimulated(const EnginePlan& plan, const ModelConfig& model,
                                               const EngineInfo& info, const Engine::Hooks& hooks) {
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < plan.num_engines; ++i) {
    EngineLoop::Parts parts;
    RETURN_IF_ERROR(AddListener(plan.config, hooks, i, parts));
    ASSIGN_OR_RETURN(parts.pool, StartRankThreads(plan.ranks.threads.front()));
    RETURN_IF_ERROR(LoadSimulated(plan, model, info.end_tokens, parts));
    ASSIGN_OR_RETURN(parts.adapters, LoadAdapters(plan, *parts.model));
    ASSIGN_OR_RETURN(engines.emplace_back(),
                     EngineLoop::Start(std::move(parts), info, plan, ObserverOf(hooks, i)));
  }
  if (engines.size() == 1) return std::move(engines.front());
  return std::make_unique<ReplicaEngine>(std::move(engines), info, plan.config.seed,
                                         plan.config.enable_prefix_caching);
}

// Refuses to release or replace the weights of a model with an image tower.
Status CheckTowerStays(const EngineConfig& config, bool has_tower) {
  if (!has_tower || (!config.enable_sleep_mode && !config.enable_weight_updates)) return {};
  return Fail(ErrorCode::kUnsupported,
              "--enable-sleep-mode and --weight-transfer-config: the image tower of a model cannot "
              "be released or replaced; omit these options",
              config.enable_sleep_mode ? "enable-sleep-mode" : "weight-transfer-config");
}

// Creates the engine in rank 0 of several processes that compute the model.
Result<std::unique_ptr<Engine>> CreateOnProcesses(const EngineConfig& config,
                                                  const ModelConfig& model,
                                                  const GenerationConfig& generation,
                                                  const std::optional<PoolingConfig>& pooling,
                                                  const ResolvedTower& tower,
                                                  const Engine::Hooks& hooks) {
  if (config.device != DeviceChoice::kCpu && config.device != DeviceChoice::kAuto) {
    return Fail(ErrorCode::kUnsupported,
                "ranks in separate processes run only on CPUs: use --device cpu", "device");
  }
  if (config.data_parallel_size > 1) {
    return Fail(ErrorCode::kUnsupported,
                "ranks in separate processes form one engine: omit data_parallel_size, and run "
                "several servers behind a load balancer",
                "data_parallel_size");
  }
  if (config.draft.is_given()) {
    return Fail(ErrorCode::kUnsupported,
                "draft models and heads are not supported with ranks in separate processes: use "
                "method ngram or suffix, or omit the ranks",
                "speculative_config");
  }
  ASSIGN_OR_RETURN(EnginePlan plan, PlanTogether(*hooks.processes, config, model, pooling, tower));
  RETURN_IF_ERROR(CheckTowerStays(config, plan.tower.has_value()));
  TellPlan(plan, hooks);
  EngineLoop::Parts parts;
  RETURN_IF_ERROR(AddListener(config, hooks, 0, parts));
  ASSIGN_OR_RETURN(parts.pool, StartRankThreads(plan.ranks.threads.front()));
  plan.no_prompt_rows = "prompt embeddings cannot be sent to ranks in separate processes yet";
  EngineInfo info = InfoOf(plan, model, generation, nullptr);
  info.tensor_ranks = hooks.processes->tensor_size;
  info.pipeline_stages = hooks.processes->num_stages;
  ASSIGN_OR_RETURN(const auto process,
                   LoadProcess(*hooks.processes, *parts.pool, plan, model, hooks.load_progress));
  TakeShare(process->TakeLead(), parts);
  RETURN_IF_ERROR(LoadTower(plan, model, *parts.pool, parts.tower));
  ASSIGN_OR_RETURN(parts.disks, OpenDiskTiers(plan, model));
  ASSIGN_OR_RETURN(parts.adapters, LoadAdapters(plan, *parts.model));
  ASSIGN_OR_RETURN(parts.dense, LoadDense(plan, *parts.pool));
  std::optional<EngineLoop::Loader> loader;
  if (config.enable_weight_updates) {
    WeightLoads::AddTo(loader.emplace(),
                       std::make_shared<WeightLoads>(plan, model, hooks.processes->here),
                       /*engine=*/0);
  }
  return EngineLoop::Start(std::move(parts), std::move(info), std::move(plan), ObserverOf(hooks, 0),
                           std::move(loader));
}

// Configuration that is read before a model is loaded.
struct Prepared {
  ModelConfig model;
  GenerationConfig generation;
  std::optional<PoolingConfig> pooling;
  ResolvedTower tower;
};

Result<Prepared> Prepare(const EngineConfig& config, bool are_processes) {
  RETURN_IF_ERROR(kernels::SelectIsa(config.cpu_isa ? kernels::IsaName(*config.cpu_isa) : "auto"));
  Prepared prepared;
  ASSIGN_OR_RETURN(prepared.model, LoadModelConfig(config.model_folder, config.config_overrides,
                                                   config.load_quantization));
  ASSIGN_OR_RETURN(prepared.pooling,
                   ResolvePooling(config.pooling, config.model_folder, prepared.model));
  if (config.simulation.is_given())
    RETURN_IF_ERROR(CheckSimulation(config, prepared.pooling, are_processes));
  prepared.tower = ResolveTower(config, prepared.model);
  ASSIGN_OR_RETURN(prepared.generation, LoadGenerationConfig(config.GenerationConfigFolder()));
  if (!prepared.generation.unreadable.empty()) {
    LOG_WARNING("engine", "{}: the file is ignored, and sampling uses its defaults",
                prepared.generation.unreadable);
  }
  return prepared;
}

// Plans an engine in this process. Sets `devices` to those that it uses; empty: the CPU.
Result<EnginePlan> PlanHere(const EngineConfig& config, Prepared& prepared, Devices& devices,
                            const Engine::Hooks& hooks) {
  if (config.simulation.is_given()) {
    Result<EnginePlan> plan = PlanSimulated(config, prepared.model);
    if (plan) TellPlan(*plan, hooks);
    return plan;
  }
  ASSIGN_OR_RETURN(devices, ChooseDevices(config));
  const Device* const device = devices.empty() ? nullptr : devices.front().get();
  if (device != nullptr && !config.load_quantization.head.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "--head-format: devices keep the head in its stored format; omit the option, or "
                "serve with --device cpu",
                "head-format");
  }
  if (!config.load_quantization.empty())
    LOG_INFO("models", "weights: {}", prepared.model.scheme->Name());
  const MemoryLimits host = ReadMemoryLimits();
  MemoryLimits memory = host;
  PlanModelFunction plan_model = PlanModel;
  if (device != nullptr) {
    ASSIGN_OR_RETURN(memory, MemoryOf(devices, host));
    plan_model = [device, &config](const ModelConfig& model, const ModelOptions& options, int) {
      return PlanDeviceRanks(model, options, device->info(), config.tensor_parallel_size,
                             config.pipeline_parallel_size);
    };
  }
  if (config.memory_budget_bytes) {
    memory.total_bytes = std::min(memory.total_bytes, *config.memory_budget_bytes);
    memory.available_bytes = memory.total_bytes;
  }
  const auto make_plan = [&](const EngineConfig& asked) -> Result<EnginePlan> {
    ASSIGN_OR_RETURN(const ReadDraft draft, ReadDraftConfig(asked, prepared.model));
    return PlanEngine(asked, prepared.model, memory, DetectTopology(), plan_model,
                      device != nullptr ? &device->info() : nullptr, host, prepared.pooling,
                      draft.model ? &*draft.model : nullptr, prepared.tower, draft.head);
  };
  EngineConfig chosen = config;
  chosen.exchanges_by_nccl = ExchangesByNccl(config, devices);
  Result<EnginePlan> plan = make_plan(chosen);
  // A draft head does not change answers. If it cannot be used, the engine serves without it.
  if (!plan && plan.error().code == ErrorCode::kUnsupported && config.draft.is_head()) {
    EngineConfig without = chosen;
    without.draft = {};
    Result<EnginePlan> other = make_plan(without);
    if (!other) return plan;
    LOG_WARNING("engine",
                "speculative_config: {}: tokens are generated one at a time, and answers are the "
                "same",
                plan.error().message);
    plan = std::move(other);
  }
  if (plan) {
    RETURN_IF_ERROR(CheckTowerStays(config, plan->tower.has_value()));
    TellPlan(*plan, hooks);
  }
  return plan;
}

}  // namespace

Status Engine::Check(const EngineConfig& config, const Hooks& hooks) {
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(config, hooks.processes != nullptr));
  RETURN_IF_ERROR(CheckReloadable(config, hooks.processes != nullptr));
  Devices devices;
  const auto plan = PlanHere(config, prepared, devices, hooks);
  if (!plan) return tl::unexpected(plan.error());
  return {};
}

Result<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config, Hooks hooks) {
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(config, hooks.processes != nullptr));
  const ModelConfig& model_config = prepared.model;
  const GenerationConfig& generation = prepared.generation;
  RETURN_IF_ERROR(CheckReloadable(config, hooks.processes != nullptr));
  if (hooks.processes != nullptr)
    return CreateOnProcesses(config, model_config, generation, prepared.pooling, prepared.tower,
                             hooks);
  EngineLoop::Parts parts;
  ASSIGN_OR_RETURN(EnginePlan plan, PlanHere(config, prepared, parts.devices, hooks));
  const Device* const device = parts.devices.empty() ? nullptr : parts.devices.front().get();

  const kernels::KvLayout layout = KvLayoutOf(model_config, ModelOptionsOf(plan));
  EngineInfo info = InfoOf(plan, model_config, generation, device);
  if (config.simulation.is_given()) {
    DescribeSimulation(config.simulation, info);
    return StartSimulated(plan, model_config, info, hooks);
  }
  if (plan.num_engines > 1) return CreateReplicas(plan, model_config, layout, info, hooks);
  RETURN_IF_ERROR(AddListener(config, hooks, 0, parts));

  // Pin threads only to the NUMA node of a rank: the server's threads use the same cores, and the
  // operating system's scheduler then places the worker threads better than fixed cores would.
  ASSIGN_OR_RETURN(parts.pool, StartRankThreads(plan.ranks.threads.front()));
  const LoadProgress progress = std::move(hooks.load_progress);
  RETURN_IF_ERROR(LoadWeights(plan, model_config, layout, progress, parts));
  if (parts.cache == nullptr) RETURN_IF_ERROR(AllocateCache(plan, model_config, layout, parts));
  RETURN_IF_ERROR(plan.tower && plan.tower_on_device
                      ? LoadDeviceTower(plan, model_config, parts)
                      : LoadTower(plan, model_config, *parts.pool, parts.tower));
  ASSIGN_OR_RETURN(parts.adapters, LoadAdapters(plan, *parts.model));
  ASSIGN_OR_RETURN(parts.disks, OpenDiskTiers(plan, model_config));
  if (device != nullptr) RETURN_IF_ERROR(WarmUpDevices(plan, parts));
  std::optional<EngineLoop::Loader> loader;
  if (parts.adapters == nullptr && parts.tower == nullptr)
    loader = LoaderOf(plan, model_config, layout);
  return EngineLoop::Start(std::move(parts), std::move(info), std::move(plan), ObserverOf(hooks, 0),
                           std::move(loader));
}

}  // namespace sluice
