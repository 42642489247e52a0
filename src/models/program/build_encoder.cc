#include "models/program/build_encoder.h"

#include <vector>

#include "kernels/attention.h"
#include "models/kv_layout.h"
#include "models/program/builder.h"

namespace sluice::program {
namespace {

Gate GateOfEncoder(EncoderSpec::Activation activation) {
  switch (activation) {
    case EncoderSpec::Activation::kGelu: return Gate::kPlainGelu;
    case EncoderSpec::Activation::kRelu: return Gate::kPlainRelu;
    case EncoderSpec::Activation::kGatedSilu: return Gate::kSilu;
    case EncoderSpec::Activation::kGatedGelu: break;
  }
  return Gate::kGeluErf;
}

class EncoderBuilder {
 public:
  explicit EncoderBuilder(const EncoderParts& parts)
      : spec_(parts.spec),
        weights_(parts.weights),
        num_threads_(parts.num_threads),
        classifies_(parts.classifies),
        takes_means_(parts.classifies && parts.spec.classifies_mean),
        hidden_(parts.spec.hidden_size),
        type_(parts.device != nullptr ? ElementType::kBF16 : parts.options.compute_type),
        to_(parts.options, InputRounding::kNone, /*splits_inputs=*/false, parts.device) {
    to_.program().norm_eps = spec_.norm_eps;
    residual_ = to_.F32("residual", Extent::kStep, hidden_);
    delta_ = to_.F32("delta", Extent::kStep, hidden_);
    inputs_ = to_.Inputs("inputs", Extent::kStep, hidden_);
    attended_ = to_.Inputs("attended", Extent::kStep, hidden_);
  }

  Program Build() {
    std::vector<int32_t> skips = {to_.next()};
    to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kHasRows});
    EmbedTexts();
    const bool before = spec_.norms_before;
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const EncoderLayerWeights& layer = weights_.layers[i];
      // The embedding has already normalized the first layer's input.
      if (i > 0 && before) EmitNorm(layer.attention_norm, delta_, /*keeps_norm=*/false);
      if (i + 1 == weights_.layers.size()) {
        skips.push_back(to_.next());
        to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kWantsRows});
      }
      Attention(i);
      if (i + 1 == weights_.layers.size() && !takes_means_) KeepWanted();
      Multiply(layer.output, attended_, delta_, hidden_, hidden_);
      EmitNorm(before ? layer.mlp_norm : layer.attention_norm, delta_, /*keeps_norm=*/!before);
      Mlp(layer);
      if (!before) EmitNorm(layer.mlp_norm, delta_, /*keeps_norm=*/true);
    }
    if (before) EmitNorm(weights_.final_norm, delta_, /*keeps_norm=*/true);
    to_.program().results_begin = to_.next();
    MakeResults();
    for (const int32_t skip : skips) to_.SkipTo(skip, to_.next());
    return std::move(to_.program());
  }

 private:
  Project& Multiply(const LinearWeights& weights, BufferId x, BufferId y, int64_t n, int64_t k) {
    Project& product = to_.Multiply(weights, {.data = x}, y, n, k);
    product.x_type = type_;
    product.is_plain = true;
    return product;
  }

  void EmitNorm(const LayerNormWeights& norm, BufferId delta, bool keeps_norm) {
    to_.Emit(LayerNorm{.residual = residual_,
                       .delta = delta,
                       .weight = to_.Vector(norm.weight, true),
                       .bias = to_.Vector(norm.bias, true),
                       .out = inputs_,
                       .scratch = keeps_norm || to_.is_device()
                                      ? kNone
                                      : to_.F32("norm_scratch", Extent::kStep, hidden_),
                       .type = type_,
                       .keeps_norm = keeps_norm,
                       .width = hidden_});
  }

  // Adds the embeddings of words, positions and types, and applies the norm.
  void EmbedTexts() {
    to_.Emit(Embed{.table = to_.Table(weights_.words),
                   .out = residual_,
                   .vocab = spec_.vocab_size,
                   .width = hidden_});
    const bool is_rotary = !spec_.rope_frequencies.empty();
    if (spec_.num_types > 0) {
      to_.Emit(
          AddEmbeddings{.x = residual_,
                        .types = to_.is_device() ? kNone : to_.Array("types", Extent::kStep, 1),
                        .positions = to_.Vector(weights_.positions, !is_rotary),
                        .type_table = to_.Vector(weights_.types, true),
                        .width = hidden_,
                        .first_position = spec_.first_position,
                        .num_types = spec_.num_types});
    }
    for (const auto* frequencies : {&spec_.rope_frequencies, &spec_.window_frequencies}) {
      const int table = static_cast<int>(to_.program().rope_tables.size());
      to_.program().rope_tables.push_back(*frequencies);
      if (!frequencies->empty()) to_.Emit(RopeTable{.table = table, .out = RopeTableOf(table)});
    }
    EmitNorm(weights_.embedding_norm, kNone, /*keeps_norm=*/true);
  }
  BufferId RopeTableOf(int table) {
    return to_.F32(table == 0 ? "rope" : "window_rope", Extent::kStep, spec_.head_dim());
  }

  // All layers use the cache's only layer, one after another.
  void Attention(size_t index) {
    const bool has_window = !spec_.has_window.empty() && spec_.has_window[index];
    AttentionSpec spec;
    spec.num_heads = spec.num_kv_heads = static_cast<int>(spec_.num_heads);
    spec.head_dim = static_cast<int>(spec_.head_dim());
    spec.rope = !spec_.rope_frequencies.empty();
    spec.rope_table = has_window ? 1 : 0;
    const AttentionId attention = to_.Attention(spec);
    const BufferId qkv = to_.Wide("qkv", Extent::kStep, spec.qkv_width());
    Multiply(weights_.layers[index].qkv, inputs_, qkv, spec.qkv_width(), hidden_).y_type =
        to_.wide();
    const BufferId q = to_.is_device() ? to_.Array("q", Extent::kStep, spec.q_width() * 2) : kNone;
    to_.Emit(RopeAppend{.attention = attention,
                        .x = qkv,
                        .cos_sin = spec.rope ? RopeTableOf(spec.rope_table) : kNone,
                        .x_type = to_.wide(),
                        .q = q});
    const ModelOptions& options = to_.options();
    const int64_t scratch_bytes =
        to_.is_device() ? 0
                        : kernels::AttentionScratchBytes(KvLayoutOf(spec, options), spec.num_heads,
                                                         options.max_rows, options.max_slices,
                                                         options.max_context, num_threads_);
    to_.Emit(Attend{.attention = attention,
                    .q = to_.is_device() ? q : qkv,
                    .out = attended_,
                    .type = type_,
                    .scratch = to_.Array("attention_scratch", Extent::kOnce, scratch_bytes),
                    .scratch_bytes = scratch_bytes,
                    .is_bidirectional = true,
                    .reach = has_window ? spec_.reach : 0});
  }

  void KeepWanted() {
    KeepRows keep;
    const int64_t f32_bytes = hidden_ * 4, bytes = hidden_ * BitsPerElement(type_) / 8;
    keep.kept[0] = {{.buffer = residual_, .stride = f32_bytes}, f32_bytes};
    keep.kept[1] = {{.buffer = attended_, .stride = bytes}, bytes};
    if (to_.is_device()) {
      keep.kept[0].to = to_.F32("last_residual", Extent::kWanted, hidden_);
      keep.kept[1].to = to_.Array("last_attended", Extent::kWanted, bytes);
    }
    to_.Emit(keep);
  }

  void Mlp(const EncoderLayerWeights& layer) {
    const int64_t width = spec_.intermediate_size;
    const int64_t inner_width = spec_.is_gated() ? 2 * width : width;
    const BufferId inner = to_.Wide("inner", Extent::kPart, inner_width);
    const BufferId activated = to_.Inputs("activated", Extent::kPart, width);
    to_.InParts(to_.program().limits.part, 1, [&] {
      Multiply(layer.up, inputs_, inner, inner_width, hidden_).y_type = to_.wide();
      to_.Emit(GateMul{.gate = GateOfEncoder(spec_.activation),
                       .x = inner,
                       .y = activated,
                       .type = type_,
                       .width = width,
                       .x_type = to_.wide()});
      Multiply(layer.down, activated, delta_, hidden_, width);
    });
  }

  void MakeResults() {
    if (takes_means_ && !to_.is_device()) to_.Emit(MeanTexts{.x = residual_, .width = hidden_});
    if (classifies_ && !to_.is_device())
      to_.Emit(Classify{.x = residual_, .scratch = delta_, .width = hidden_});
    else
      to_.Emit(CopyResults{.x = residual_, .width = hidden_});
  }

  const EncoderSpec& spec_;
  const EncoderWeights& weights_;
  const int num_threads_;
  const bool classifies_, takes_means_;
  const int64_t hidden_;
  const ElementType type_;  // type of products' inputs
  Builder to_;
  BufferId residual_ = kNone, delta_ = kNone, inputs_ = kNone, attended_ = kNone;
};

}  // namespace

Program BuildEncoder(const EncoderParts& parts) {
  return EncoderBuilder(parts).Build();
}

}  // namespace sluice::program
