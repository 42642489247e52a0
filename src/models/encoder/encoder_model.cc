#include "models/encoder/encoder_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/bidirectional_attention.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"
#include "models/encoder/encoder_classifier.h"
#include "models/encoder/encoder_weights.h"
#include "models/weight_loader.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

constexpr int64_t kArrayAlignment = 64;

// Byte offsets of a step's arrays.
struct EncoderLayout {
  int64_t residual = 0;  // [rows, hidden] F32
  int64_t delta = 0;     // [rows, hidden] F32
  int64_t inputs = 0;    // [rows, hidden] compute type: of the next product
  int64_t qkv = 0;       // [rows, 3 * hidden] F32
  int64_t scratch = 0;   // of the attention
  int64_t scratch_bytes = 0;
  int64_t cos_sin = 0;         // [rows, head_dim] F32, where positions are rotary
  int64_t window_cos_sin = 0;  // the same of layers with a window
  int64_t inner = 0;           // [rows, intermediate] F32, twice where the MLP has a gate
  int64_t activated = 0;       // [rows, intermediate] compute type
  int64_t total_bytes = 0;

  EncoderLayout(const EncoderSpec& spec, const ModelOptions& options, int num_threads) {
    const auto take = [this](int64_t bytes) {
      const int64_t offset = total_bytes;
      total_bytes = (total_bytes + bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
      return offset;
    };
    const int64_t rows = options.max_rows;
    const int64_t size = BitsPerElement(options.compute_type) / 8;
    residual = take(rows * spec.hidden_size * 4);
    delta = take(rows * spec.hidden_size * 4);
    inputs = take(rows * spec.hidden_size * size);
    qkv = take(rows * 3 * spec.hidden_size * 4);
    const kernels::KvLayout cache{.num_kv_heads = static_cast<int>(spec.num_heads),
                                  .head_dim = static_cast<int>(spec.head_dim()),
                                  .block_size = options.block_size,
                                  .type = options.kv_type};
    scratch_bytes = kernels::AttentionScratchBytes(
        cache, cache.num_kv_heads, rows, options.max_slices, options.max_context, num_threads);
    scratch = take(scratch_bytes);
    if (!spec.rope_frequencies.empty()) cos_sin = take(rows * spec.head_dim() * 4);
    if (!spec.window_frequencies.empty()) window_cos_sin = take(rows * spec.head_dim() * 4);
    inner = take(rows * spec.intermediate_size * (spec.is_gated() ? 8 : 4));
    activated = take(rows * spec.intermediate_size * size);
  }
};

class EncoderModel final : public Model {
 public:
  EncoderModel(ModelConfig config, const ModelOptions& options, const EncoderSpec& spec,
               std::shared_ptr<const EncoderWeights> weights, const EncoderLayout& layout,
               Buffer memory)
      : Model(std::move(config)),
        options_(options),
        spec_(spec),
        shared_weights_(std::move(weights)),
        layout_(layout),
        memory_(std::move(memory)),
        types_(static_cast<size_t>(options.max_rows)) {}

  void PrepareThread(const ThreadPool& pool) override {
    kernels::ReserveLinearScratch(pool, options_.max_rows, WidestInput());
  }

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override {
    auto rows = static_cast<int64_t>(input.tokens.size());
    if (rows == 0) return;
    CHECK_LE(rows, options_.max_rows);
    for (const kernels::AttentionSlice& slice : input.slices) CHECK_EQ(slice.context, 0);
    Embed(pool, input);
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const EncoderLayerWeights& layer = weights_.layers[i];
      if (i > 0 && spec_.norms_before) NormInputs(pool, layer.attention_norm, rows);
      Attend(pool, input, cache, layer, !spec_.has_window.empty() && spec_.has_window[i]);
      if (i + 1 == weights_.layers.size() && !TakesMeans()) {
        // Behind the last attention no row depends on another.
        KeepWantedRows(input);
        rows = static_cast<int64_t>(input.logit_rows.size());
      }
      RunLayerEnd(pool, layer, rows);
    }
    if (spec_.norms_before && rows > 0) Norm(pool, weights_.final_norm, rows);
    if (TakesMeans()) {
      TakeTextMeans(pool, input, spec_.hidden_size, At<float>(layout_.residual));
      rows = static_cast<int64_t>(input.logit_rows.size());
    }
    if (weights_.classifier.out.empty()) {
      std::copy_n(At<float>(layout_.residual), rows * spec_.hidden_size, results);
    } else {
      ScoreTexts(pool, weights_.classifier, spec_.norm_eps, At<float>(layout_.residual), rows,
                 spec_.hidden_size, At<float>(layout_.delta), results);
    }
  }

  Result<std::unique_ptr<Model>> Share(const ThreadPool& pool) const override {
    return Make(config_, options_, spec_, shared_weights_, pool.num_threads());
  }

  static Result<std::unique_ptr<Model>> Make(ModelConfig config, const ModelOptions& options,
                                             const EncoderSpec& spec,
                                             std::shared_ptr<const EncoderWeights> weights,
                                             int num_threads) {
    const EncoderLayout layout(spec, options, num_threads);
    ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(static_cast<size_t>(layout.total_bytes),
                                                     "the workspace of a step"));
    return std::make_unique<EncoderModel>(std::move(config), options, spec, std::move(weights),
                                          layout, std::move(memory));
  }

  int64_t WidestInput() const { return std::max(spec_.hidden_size, spec_.intermediate_size); }

 private:
  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(memory_.As<std::byte>().data() + offset);
  }

  // Words, positions and types together, and their norm.
  void Embed(ThreadPool& pool, const StepInput& input) {
    const int64_t width = spec_.hidden_size;
    auto* x = At<float>(layout_.residual);
    const auto rows = static_cast<int64_t>(input.tokens.size());
    kernels::Embedding(pool, weights_.words, input.tokens, x);
    FillTypes(input);
    pool.ParallelFor(rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const auto index = static_cast<size_t>(row);
        float* out = x + row * width;
        if (weights_.types.empty()) continue;  // Rotary: nothing is learned of positions.
        const float* type = weights_.types.data() + types_[index] * width;
        if (weights_.positions.empty()) {
          for (int64_t i = 0; i < width; ++i) out[i] += type[i];
          continue;
        }
        const int64_t place = input.positions[index] + spec_.first_position;
        const float* position = weights_.positions.data() + place * width;
        for (int64_t i = 0; i < width; ++i) out[i] += position[i] + type[i];
      }
    });
    if (!spec_.rope_frequencies.empty()) {
      kernels::RopeTable(pool, input.positions, spec_.rope_frequencies, At<float>(layout_.cos_sin));
    }
    if (!spec_.window_frequencies.empty()) {
      kernels::RopeTable(pool, input.positions, spec_.window_frequencies,
                         At<float>(layout_.window_cos_sin));
    }
    Norm(pool, weights_.embedding_norm, rows);
  }

  // The type of every token.
  void FillTypes(const StepInput& input) {
    std::fill_n(types_.begin(), input.tokens.size(), 0);
    for (size_t i = 0; i < input.second_texts.size(); ++i) {
      const kernels::AttentionSlice& slice = input.slices[i];
      const int64_t first = std::min<int64_t>(input.second_texts[i], slice.num_tokens);
      CHECK(first == slice.num_tokens || spec_.num_types > 1);
      std::fill(types_.begin() + slice.first_row + first,
                types_.begin() + slice.first_row + slice.num_tokens, int8_t{1});
    }
  }

  // Of the residual, in place and as the inputs of the next product.
  void Norm(ThreadPool& pool, const LayerNormWeights& weights, int64_t rows) {
    kernels::LayerNorm(pool, At<float>(layout_.residual), weights.weight.data(),
                       weights.bias.data(), spec_.norm_eps, rows, spec_.hidden_size,
                       At<std::byte>(layout_.inputs), options_.compute_type);
  }

  // Of the residual, which stays as it is, as the inputs of the next product.
  void NormInputs(ThreadPool& pool, const LayerNormWeights& weights, int64_t rows) {
    auto* const copy = At<float>(layout_.delta);
    const float* const residual = At<float>(layout_.residual);
    pool.ParallelFor(rows * spec_.hidden_size, 4096, [&](int64_t begin, int64_t end) {
      std::copy(residual + begin, residual + end, copy + begin);
    });
    kernels::LayerNorm(pool, copy, weights.weight.data(), weights.bias.data(), spec_.norm_eps, rows,
                       spec_.hidden_size, At<std::byte>(layout_.inputs), options_.compute_type);
  }

  void Product(ThreadPool& pool, const LinearWeights& weights, int64_t inputs, int64_t rows,
               int64_t result) {
    const kernels::Activations x{.data = At<std::byte>(inputs),
                                 .type = options_.compute_type,
                                 .rows = rows,
                                 .cols = weights.matrix.cols,
                                 .stride = weights.matrix.cols};
    kernels::Linear(pool, weights.matrix, x, At<float>(result), weights.matrix.rows,
                    weights.bias.empty() ? nullptr : weights.bias.data());
  }

  // Leaves the attention's result in `inputs`.
  void Attend(ThreadPool& pool, const StepInput& input, KvCache& cache,
              const EncoderLayerWeights& layer, bool has_window) {
    const int64_t width = spec_.hidden_size;
    Product(pool, layer.qkv, layout_.inputs, static_cast<int64_t>(input.tokens.size()),
            layout_.qkv);
    auto* q = At<float>(layout_.qkv);
    if (!spec_.rope_frequencies.empty()) {
      // Heads of queries and of keys, one behind the other.
      kernels::ApplyRope(pool, q, 3 * width, static_cast<int64_t>(input.tokens.size()),
                         static_cast<int>(2 * spec_.num_heads), static_cast<int>(spec_.head_dim()),
                         static_cast<int>(spec_.head_dim()), kernels::RopeStyle::kHalf,
                         At<float>(has_window ? layout_.window_cos_sin : layout_.cos_sin));
    }
    // All layers use the cache of one, each after the other.
    const kernels::KvCacheView& view = cache.layer(0);
    kernels::AppendKv(pool, view, input.slices, q + width, q + 2 * width, 3 * width);
    const auto head_dim = static_cast<float>(spec_.head_dim());
    kernels::BidirectionalAttention(
        pool, view, input.slices, has_window ? spec_.reach : 0, q, 3 * width,
        static_cast<int>(spec_.num_heads), 1 / std::sqrt(head_dim), At<std::byte>(layout_.inputs),
        options_.compute_type,
        {At<std::byte>(layout_.scratch), static_cast<size_t>(layout_.scratch_bytes)});
  }

  void KeepWantedRows(const StepInput& input) {
    const auto keep = [&](int64_t array, int64_t row_bytes) {
      auto* bytes = At<std::byte>(array);
      for (size_t i = 0; i < input.logit_rows.size(); ++i) {
        std::memmove(bytes + static_cast<int64_t>(i) * row_bytes,
                     bytes + input.logit_rows[i] * row_bytes, static_cast<size_t>(row_bytes));
      }
    };
    keep(layout_.residual, spec_.hidden_size * 4);
    keep(layout_.inputs, spec_.hidden_size * BitsPerElement(options_.compute_type) / 8);
  }

  // Whether scores are made of means.
  bool TakesMeans() const { return spec_.classifies_mean && !weights_.classifier.out.empty(); }

  // The output projection and the MLP, each with its norm before it or behind the sum.
  void RunLayerEnd(ThreadPool& pool, const EncoderLayerWeights& layer, int64_t rows) {
    if (rows == 0) return;
    const int64_t count = rows * spec_.hidden_size;
    Product(pool, layer.output, layout_.inputs, rows, layout_.delta);
    kernels::ResidualAdd(pool, At<float>(layout_.residual), At<float>(layout_.delta), count);
    if (spec_.norms_before)
      NormInputs(pool, layer.mlp_norm, rows);
    else
      Norm(pool, layer.attention_norm, rows);
    Product(pool, layer.up, layout_.inputs, rows, layout_.inner);
    Activate(pool, rows);
    Product(pool, layer.down, layout_.activated, rows, layout_.delta);
    kernels::ResidualAdd(pool, At<float>(layout_.residual), At<float>(layout_.delta), count);
    if (!spec_.norms_before) Norm(pool, layer.mlp_norm, rows);
  }

  void Activate(ThreadPool& pool, int64_t rows) {
    using Activation = EncoderSpec::Activation;
    const int64_t width = spec_.intermediate_size;
    auto* inner = At<float>(layout_.inner);
    auto* out = At<std::byte>(layout_.activated);
    switch (spec_.activation) {
      case Activation::kGatedSilu:
        return kernels::SiluMul(pool, inner, rows, width, out, options_.compute_type);
      case Activation::kGatedGelu:
        return kernels::GeluErfMul(pool, inner, rows, width, out, options_.compute_type);
      case Activation::kGelu:
        return kernels::Gelu(pool, inner, rows * width, out, options_.compute_type);
      case Activation::kRelu: return Relu(pool, inner, rows * width);
    }
  }

  void Relu(ThreadPool& pool, const float* inner, int64_t count) {
    pool.ParallelFor(count, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float value = std::max(inner[i], 0.0f);
        if (options_.compute_type == ElementType::kBF16)
          At<BFloat16>(layout_.activated)[i] = ToBFloat16(value);
        else
          At<float>(layout_.activated)[i] = value;
      }
    });
  }

  ModelOptions options_;
  EncoderSpec spec_;
  std::shared_ptr<const EncoderWeights> shared_weights_;
  const EncoderWeights& weights_ = *shared_weights_;
  EncoderLayout layout_;
  Buffer memory_;
  std::vector<int8_t> types_;  // [max_rows]
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
  memory.workspace_bytes =
      EncoderLayout(spec, options, num_threads).total_bytes +
      kernels::LinearScratchBytes(num_threads, options.max_rows,
                                  std::max(spec.hidden_size, spec.intermediate_size));
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
