#include "models/encoder/encoder_model.h"

#include <utility>

#include "base/check.h"
#include "kernels/linear.h"
#include "models/cpu/executor.h"
#include "models/encoder/encoder_classifier.h"
#include "models/encoder/encoder_weights.h"
#include "models/program/build_encoder.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

class EncoderModel final : public Model {
 public:
  EncoderModel(ModelConfig config, const ModelOptions& options, const EncoderSpec& spec,
               std::shared_ptr<const EncoderWeights> weights, CpuExecutor executor)
      : Model(std::move(config)),
        options_(options),
        spec_(spec),
        weights_(std::move(weights)),
        executor_(std::move(executor)) {}

  void PrepareThread(const ThreadPool& pool) override {
    kernels::ReserveLinearScratch(pool, options_.max_rows,
                                  program::WidestInput(executor_.program()));
  }

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override {
    CHECK_LE(std::ssize(input.tokens), options_.max_rows);
    for (const kernels::AttentionSlice& slice : input.slices) CHECK_EQ(slice.context, 0);
    const CpuStep step{.pool = pool, .input = input, .cache = &cache, .results = results};
    if (const int64_t rows = executor_.RunBody(step); rows > 0) executor_.MakeResults(rows, step);
  }

  Result<std::unique_ptr<Model>> Share(const ThreadPool& pool) const override {
    return Make(config_, options_, spec_, weights_, pool.num_threads());
  }

  static Result<std::unique_ptr<Model>> Make(ModelConfig config, const ModelOptions& options,
                                             const EncoderSpec& spec,
                                             std::shared_ptr<const EncoderWeights> weights,
                                             int num_threads) {
    ASSIGN_OR_RETURN(
        CpuExecutor executor,
        CpuExecutor::Create(program::BuildEncoder({.spec = spec,
                                                   .options = options,
                                                   .num_threads = num_threads,
                                                   .classifies = !weights->classifier.out.empty(),
                                                   .weights = *weights}),
                            options, {.classifier = &weights->classifier}));
    return std::make_unique<EncoderModel>(std::move(config), options, spec, std::move(weights),
                                          std::move(executor));
  }

 private:
  ModelOptions options_;
  EncoderSpec spec_;
  std::shared_ptr<const EncoderWeights> weights_;
  CpuExecutor executor_;
};

}  // namespace

void PlanEncoderCache(const EncoderSpec& spec, const ModelOptions& options, ModelMemory& memory) {
  memory.kv_groups = KvGroups::Uniform(1);
  memory.kv_bytes_per_block =
      KvCache::BytesPerBlock({.num_kv_heads = static_cast<int>(spec.num_heads),
                              .head_dim = static_cast<int>(spec.head_dim()),
                              .block_size = options.block_size,
                              .type = options.kv_type},
                             1);
  memory.kv_bytes_per_group_block = memory.kv_bytes_per_block;
}

Result<ModelMemory> PlanEncoder(const ModelConfig& config, const ModelOptions& options,
                                int num_threads) {
  ASSIGN_OR_RETURN(const EncoderSpec spec, ReadEncoderSpec(config.raw));
  EncoderWeights unfilled;
  const ParameterList parameters =
      ListEncoderParameters(spec, NumScores(config), /*prefix=*/"", unfilled);
  ModelMemory memory;
  memory.weight_bytes = ParameterBytes(parameters, *config.scheme, options.compute_type);
  memory.token_weight_bytes = memory.weight_bytes;
  const program::Program program = program::BuildEncoder({.spec = spec,
                                                          .options = options,
                                                          .num_threads = num_threads,
                                                          .classifies = NumScores(config) > 0,
                                                          .weights = unfilled});
  memory.workspace_bytes =
      program::BufferPlan::For(program).total_bytes +
      kernels::LinearScratchBytes(num_threads, options.max_rows, program::WidestInput(program));
  PlanEncoderCache(spec, options, memory);
  return memory;
}

Result<std::unique_ptr<Model>> LoadEncoder(ThreadPool& pool, const std::filesystem::path& folder,
                                           ModelConfig config, const ModelOptions& options,
                                           const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const EncoderSpec spec, ReadEncoderSpec(config.raw));
  EncoderWeights weights;
  if (options.load_format == ModelOptions::LoadFormat::kDummy) {
    const ParameterList parameters = ListEncoderParameters(spec, NumScores(config), "", weights);
    RETURN_IF_ERROR(FillDummyParameters(pool, parameters, options.dummy_seed, *config.scheme,
                                        options.compute_type, progress));
  } else {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
    const ParameterList parameters =
        ListEncoderParameters(spec, NumScores(config), EncoderPrefix(checkpoint), weights);
    RETURN_IF_ERROR(CheckEncoderParameters(parameters, checkpoint, *config.scheme));
    RETURN_IF_ERROR(LoadParameters(pool, parameters, checkpoint, *config.scheme,
                                   options.compute_type, progress, options.allow_nonfinite));
  }
  FillEncoderBiases(spec, weights);
  return EncoderModel::Make(std::move(config), options, spec,
                            std::make_shared<const EncoderWeights>(std::move(weights)),
                            pool.num_threads());
}

}  // namespace sluice
