#include "quantize/calibrator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "kernels/embedding.h"
#include "models/cpu/executor.h"
#include "models/kv_cache.h"
#include "models/kv_layout.h"
#include "models/program/build_decoder.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

// Collects the inputs of a layer's matrices, and its keys and values.
class Collector : public StepObserver {
 public:
  Collector(ThreadPool& pool, LayerStatistics& statistics) : pool_(pool), statistics_(statistics) {}
  void OnInputs(const kernels::PackedMatrix& matrix, const kernels::Activations& x) override {
    statistics_.inputs[&matrix].Add(pool_, x);
  }
  void OnKeysAndValues(const kernels::Activations& keys,
                       const kernels::Activations& values) override {
    statistics_.keys.Add(pool_, keys);
    statistics_.values.Add(pool_, values);
  }

 private:
  ThreadPool& pool_;
  LayerStatistics& statistics_;
};

// Returns the part of the list that belongs to a module, including its submodules.
ParameterList PartOf(const ParameterList& list, const std::string& prefix) {
  const auto is_in = [&](const std::vector<ParameterPart>& parts) {
    return parts.front().name.starts_with(prefix);
  };
  ParameterList part;
  std::copy_if(list.matrices.begin(), list.matrices.end(), std::back_inserter(part.matrices),
               [&](const MatrixParameter& matrix) { return is_in(matrix.parts); });
  std::copy_if(list.vectors.begin(), list.vectors.end(), std::back_inserter(part.vectors),
               [&](const VectorParameter& vector) { return is_in(vector.parts); });
  return part;
}

class LayerwiseCalibrator : public Calibrator {
 public:
  LayerwiseCalibrator(ThreadPool& pool, const ModelConfig& config, const DecoderSpec& spec,
                      const Checkpoint& checkpoint, const ParameterList& list,
                      DecoderWeights& weights, std::vector<std::vector<int32_t>> sequences)
      : pool_(pool),
        config_(config),
        spec_(spec),
        checkpoint_(checkpoint),
        list_(list),
        weights_(weights),
        sequences_(std::move(sequences)) {}

  Status Start() {
    for (const auto& sequence : sequences_)
      longest_ = std::max(longest_, static_cast<int64_t>(sequence.size()));
    options_.max_rows = longest_;
    options_.max_slices = 1;
    options_.max_context = longest_;
    options_.max_logit_rows = 1;
    blocks_.resize(static_cast<size_t>((longest_ + options_.block_size - 1) / options_.block_size));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    positions_.resize(static_cast<size_t>(longest_));
    std::iota(positions_.begin(), positions_.end(), 0);
    RETURN_IF_ERROR(LoadParameters(pool_, PartOf(list_, "model.embed_tokens"), checkpoint_,
                                   *config_.scheme, options_.compute_type, {}));
    for (const auto& sequence : sequences_) {
      auto& states = states_.emplace_back(sequence.size() * static_cast<size_t>(spec_.hidden_size));
      kernels::Embedding(pool_, weights_.embedding, sequence, states.data());
      for (float& number : states) number *= spec_.embedding_scale;
    }
    weights_.embedding = {};
    return {};
  }

  Result<LayerStatistics> RunLayer(int64_t layer) override {
    const auto index = static_cast<size_t>(layer);
    RETURN_IF_ERROR(LoadParameters(pool_, PartOf(list_, fmt::format("model.layers.{}.", layer)),
                                   checkpoint_, *config_.scheme, options_.compute_type, {}));
    ASSIGN_OR_RETURN(KvCache cache, KvCache::Allocate(KvLayoutOf(spec_, options_), /*num_layers=*/1,
                                                      static_cast<int64_t>(blocks_.size())));
    ASSIGN_OR_RETURN(
        const CpuExecutor executor,
        CpuExecutor::Create(program::BuildDecoderLayer({.spec = spec_,
                                                        .options = options_,
                                                        .num_threads = pool_.num_threads(),
                                                        .weights = weights_},
                                                       layer),
                            options_, {}));
    LayerStatistics statistics;
    Collector collector(pool_, statistics);
    for (size_t i = 0; i < sequences_.size(); ++i)
      RunSequence(executor, sequences_[i], states_[i], cache, collector);
    // The statistics are keyed by the addresses of matrices. Dropping the weights keeps these
    // addresses valid.
    DropLayer(weights_.layers[index]);
    return statistics;
  }

 private:
  static void DropLayer(LayerWeights& layer) {
    layer.attention.qkv.matrix = {};
    layer.attention.output.matrix = {};
    layer.mlp.gate_up.matrix = {};
    layer.mlp.down.matrix = {};
    layer.moe.router.matrix = {};
    for (ExpertWeights* experts : {&layer.moe.gate_up, &layer.moe.down}) {
      for (kernels::PackedMatrix& matrix : experts->matrices) matrix = {};
    }
  }

  void RunSequence(const CpuExecutor& executor, const std::vector<int32_t>& tokens,
                   std::vector<float>& states, KvCache& cache, StepObserver& observer) {
    const kernels::AttentionSlice slice{0, static_cast<int32_t>(tokens.size()), 0, blocks_.data()};
    const StepInput input{.tokens = tokens,
                          .positions = {positions_.data(), tokens.size()},
                          .slices = {&slice, 1},
                          .logit_rows = {}};
    std::byte* const residual =
        executor.BufferAt(program::FindBuffer(executor.program(), "residual"));
    std::memcpy(residual, states.data(), states.size() * sizeof(float));
    executor.RunBody({.pool = pool_, .input = input, .cache = &cache, .observer = &observer});
    std::memcpy(states.data(), residual, states.size() * sizeof(float));
  }

  ThreadPool& pool_;
  const ModelConfig& config_;
  const DecoderSpec& spec_;
  const Checkpoint& checkpoint_;
  const ParameterList& list_;
  DecoderWeights& weights_;
  const std::vector<std::vector<int32_t>> sequences_;
  std::vector<std::vector<float>> states_;  // for each sequence [tokens, hidden]
  ModelOptions options_;
  std::vector<int32_t> blocks_, positions_;
  int64_t longest_ = 0;
};

}  // namespace

Result<std::unique_ptr<Calibrator>> Calibrator::Create(
    ThreadPool& pool, const ModelConfig& config, const DecoderSpec& spec,
    const Checkpoint& checkpoint, const ParameterList& list, DecoderWeights& weights,
    std::vector<std::vector<int32_t>> sequences) {
  auto calibrator = std::make_unique<LayerwiseCalibrator>(pool, config, spec, checkpoint, list,
                                                          weights, std::move(sequences));
  RETURN_IF_ERROR(calibrator->Start());
  return std::unique_ptr<Calibrator>(std::move(calibrator));
}

}  // namespace sluice
