// PlanModel and LoadModel.
#include <fmt/format.h>

#include "base/check.h"
#include "models/decoder.h"
#include "models/registry.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

Status CheckOptions(const ModelOptions& options) {
  const auto is_float = [](ElementType type) {
    return type == ElementType::kBF16 || type == ElementType::kF32;
  };
  if (!is_float(options.compute_type)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("compute type {} is not supported; supported are BF16 and F32",
                            ElementTypeName(options.compute_type)),
                "dtype");
  }
  if (!is_float(options.kv_type)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("KV cache type {} is not supported; supported are BF16 and F32",
                            ElementTypeName(options.kv_type)),
                "kv_cache_dtype");
  }
  CHECK(options.block_size > 0 && options.max_rows > 0 && options.max_slices > 0 &&
        options.max_context > 0 && options.max_logit_rows > 0);
  return {};
}

}  // namespace

Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const DecoderSpec spec, DescribeModel(config));
  DecoderWeights unfilled;
  return CheckParameters(ListParameters(spec, unfilled), checkpoint, spec.tied_head);
}

Result<ModelMemory> PlanModel(const ModelConfig& config, const ModelOptions& options,
                              int num_threads) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const DecoderSpec spec, DescribeModel(config));
  DecoderWeights unfilled;
  const ParameterList parameters = ListParameters(spec, unfilled);
  ModelMemory memory;
  memory.weight_bytes = ParameterBytes(parameters, options.compute_type, config.dtype);
  memory.workspace_bytes = WorkspaceLayout::For(spec, options, num_threads).total_bytes;
  memory.kv_bytes_per_block =
      KvCache::BytesPerBlock(KvLayoutOf(spec, options), static_cast<int64_t>(spec.layers.size()));
  return memory;
}

Result<std::unique_ptr<Model>> LoadModel(ThreadPool& pool, const std::filesystem::path& folder,
                                         ModelConfig config, const ModelOptions& options,
                                         const LoadProgress& progress) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(DecoderSpec spec, DescribeModel(config));
  DecoderWeights weights;
  const ParameterList parameters = ListParameters(spec, weights);
  if (options.load_format == ModelOptions::LoadFormat::kDummy) {
    RETURN_IF_ERROR(FillDummyParameters(pool, parameters, options.dummy_seed, options.compute_type,
                                        config.dtype, progress));
  } else {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
    RETURN_IF_ERROR(CheckParameters(parameters, checkpoint, spec.tied_head));
    RETURN_IF_ERROR(LoadParameters(pool, parameters, checkpoint, options.compute_type, progress));
  }
  ASSIGN_OR_RETURN(Workspace workspace,
                   Workspace::Allocate(WorkspaceLayout::For(spec, options, pool.num_threads())));
  return std::make_unique<DecoderModel>(std::move(config), options, std::move(spec),
                                        std::move(weights), std::move(workspace));
}

}  // namespace sluice
