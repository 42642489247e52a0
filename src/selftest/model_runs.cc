#include "selftest/model_runs.h"

#include <algorithm>
#include <numeric>

#include "base/firewall.h"
#include "device/device_pool.h"
#include "kernels/sampling.h"
#include "models/device/device_model.h"
#include "models/kv_layout.h"

namespace sluice::selftest {

using checks::DeviceUnderTest;

namespace {

int64_t BlocksOf(const ModelOptions& options) {
  return (options.max_context + options.block_size - 1) / options.block_size * options.max_slices;
}

class CpuModel final : public LoadedModel {
 public:
  CpuModel(ThreadPool& pool, const ModelOptions& options) : LoadedModel(pool, options) {}

  Status Open(ThreadPool& pool, const std::filesystem::path& folder, const ModelOptions& options) {
    ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(folder));
    ASSIGN_OR_RETURN(model_, LoadModel(pool, folder, config, options));
    ASSIGN_OR_RETURN(KvCache cache,
                     KvCache::Allocate(KvLayoutOf(config.spec, options),
                                       KvGroups::Uniform(config.spec), BlocksOf(options)));
    cache_ = std::make_unique<KvCache>(std::move(cache));
    return {};
  }
};

class OnDevice final : public LoadedModel {
 public:
  OnDevice(ThreadPool& pool, const ModelOptions& options) : LoadedModel(pool, options) {}
  ~OnDevice() override { model_.reset(); }  // destroyed before the memory that it uses

  Status Open(Device& device, ThreadPool& pool, const std::filesystem::path& folder,
              const ModelOptions& options) {
    ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(folder));
    ASSIGN_OR_RETURN(const ModelMemory memory, PlanDeviceModel(config, options, device.info()));
    const kernels::KvLayout layout = KvLayoutOf(config.spec, options);
    const KvGroups groups = KvGroups::Uniform(config.num_hidden_layers);
    const int64_t kv_bytes =
        KvCache::BytesPerBlock(layout, config.num_hidden_layers) * BlocksOf(options);
    const int64_t bytes = DevicePool::Padded(memory.weight_bytes) +
                          DevicePool::Padded(memory.workspace_bytes) + DevicePool::Padded(kv_bytes);
    ASSIGN_OR_RETURN(DevicePool pieces, DevicePool::Allocate(device, bytes, "the demo model"));
    memory_ = std::make_unique<DevicePool>(std::move(pieces));
    ASSIGN_OR_RETURN(model_, LoadDeviceModel(device, *memory_, pool, folder, config, options));
    ASSIGN_OR_RETURN(void* const kv, memory_->Take(kv_bytes, "the KV cache"));
    cache_ = std::make_unique<KvCache>(KvCache::Wrap(layout, groups, BlocksOf(options), kv));
    return {};
  }

 private:
  std::unique_ptr<DevicePool> memory_;
};

}  // namespace

ModelOptions SmallModelOptions(int64_t sequences, int64_t tokens) {
  ModelOptions options;
  options.max_slices = sequences;
  options.max_context = (tokens + 15) / 16 * 16;
  options.max_rows = sequences * options.max_context;
  options.max_logit_rows = options.max_rows;
  return options;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(ThreadPool& pool,
                                                       const std::filesystem::path& folder,
                                                       const ModelOptions& options) {
  auto model = std::make_unique<CpuModel>(pool, options);
  RETURN_IF_ERROR(model->Open(pool, folder, options));
  return model;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::LoadOn(const DeviceUnderTest& device,
                                                         ThreadPool& pool,
                                                         const std::filesystem::path& folder,
                                                         const ModelOptions& options) {
  auto model = std::make_unique<OnDevice>(pool, options);
  RETURN_IF_ERROR(model->Open(device.device(), pool, folder, options));
  return model;
}

Status LoadedModel::Step(const std::vector<std::vector<int32_t>>& sequences,
                         const std::vector<Part>& parts, Logits& logits) {
  const int64_t blocks = BlocksOf(options_) / options_.max_slices;
  std::vector<int32_t> tokens, positions;
  std::vector<std::vector<int32_t>> tables;
  std::vector<kernels::AttentionSlice> slices;
  for (const Part& part : parts) {
    // The consecutive blocks of a sequence are not adjacent in memory.
    auto& table = tables.emplace_back();
    for (int64_t i = 0; i < blocks; ++i)
      table.push_back(
          static_cast<int32_t>(i * options_.max_slices + static_cast<int64_t>(part.sequence)));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    slices.push_back({.first_row = static_cast<int64_t>(tokens.size()),
                      .num_tokens = static_cast<int32_t>(part.end - part.begin),
                      .context = static_cast<int32_t>(part.begin),
                      .block_table = tables[i].data()});
    for (int64_t at = part.begin; at < part.end; ++at) {
      tokens.push_back(sequences[part.sequence][static_cast<size_t>(at)]);
      positions.push_back(static_cast<int32_t>(at));
    }
  }
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto vocabulary = static_cast<size_t>(model_->config().vocab_size);
  std::vector<float> values(rows.size() * vocabulary);
  try {
    model_->Forward(
        pool_, {.tokens = tokens, .positions = positions, .slices = slices, .logit_rows = rows},
        *cache_, values.data());
  } catch (...) {
    return tl::unexpected<Error>(CaughtError());
  }
  size_t row = 0;
  for (const Part& part : parts) {
    for (int64_t at = part.begin; at < part.end; ++at, ++row) {
      const auto from = values.begin() + static_cast<ptrdiff_t>(row * vocabulary);
      logits[part.sequence].emplace_back(from, from + static_cast<ptrdiff_t>(vocabulary));
    }
  }
  return {};
}

Result<LoadedModel::Logits> LoadedModel::Run(const std::vector<std::vector<int32_t>>& sequences,
                                             const std::vector<int64_t>& prefill) {
  model_->PrepareThread(pool_);
  Logits logits(sequences.size());
  std::vector<Part> first, second;
  int64_t longest = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t cut =
        prefill[s] * static_cast<int64_t>(s + 1) / static_cast<int64_t>(sequences.size() + 1);
    if (cut > 0) first.push_back({s, 0, cut});
    if (cut < prefill[s]) second.push_back({s, cut, prefill[s]});
    longest = std::max(longest, static_cast<int64_t>(sequences[s].size()) - prefill[s]);
  }
  if (!first.empty()) RETURN_IF_ERROR(Step(sequences, first, logits));
  if (!second.empty()) RETURN_IF_ERROR(Step(sequences, second, logits));
  for (int64_t i = 0; i < longest; ++i) {
    std::vector<Part> parts;
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (prefill[s] + i < static_cast<int64_t>(sequences[s].size()))
        parts.push_back({s, prefill[s] + i, prefill[s] + i + 1});
    }
    RETURN_IF_ERROR(Step(sequences, parts, logits));
  }
  return logits;
}

Result<std::vector<std::vector<int32_t>>> LoadedModel::Continue(
    const std::vector<std::vector<int32_t>>& prompts, int64_t count) {
  model_->PrepareThread(pool_);
  std::vector<std::vector<int32_t>> sequences = prompts;
  Logits logits(prompts.size());
  for (int64_t i = 0; i < count; ++i) {
    std::vector<Part> parts;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const auto end = static_cast<int64_t>(sequences[s].size());
      parts.push_back({s, i == 0 ? 0 : end - 1, end});
    }
    RETURN_IF_ERROR(Step(sequences, parts, logits));
    for (size_t s = 0; s < sequences.size(); ++s)
      sequences[s].push_back(kernels::ArgMax(logits[s].back()));
  }
  return sequences;
}

}  // namespace sluice::selftest
