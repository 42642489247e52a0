#include "models/program/build_tower.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/attention.h"
#include "models/kv_layout.h"
#include "models/program/builder.h"

namespace sluice::program {
namespace {

using StepKind = ProjectorStep::Kind;

class TowerBuilder {
 public:
  explicit TowerBuilder(const TowerParts& parts)
      : spec_(parts.spec),
        weights_(parts.weights),
        num_threads_(parts.num_threads),
        part_(parts.part),
        hidden_(parts.spec.hidden),
        width_(parts.spec.heads * parts.spec.head_dim),
        type_(parts.device != nullptr ? ElementType::kBF16 : parts.options.compute_type),
        in_type_(parts.spec.clips ? ElementType::kF32 : type_),
        to_(parts.options, InputRounding::kNone, /*splits_inputs=*/false, parts.device) {
    Program& program = to_.program();
    program.norm_eps = spec_.norm_eps;
    residual_ = to_.F32("residual", Extent::kStep, hidden_);
    delta_ = to_.F32("delta", Extent::kStep, hidden_);
    inputs_ = Inputs("inputs", Extent::kStep, hidden_);
    attended_ = Inputs("attended", Extent::kStep, width_);
    if (!spec_.features.empty())
      features_ = to_.F32("features", Extent::kStep, spec_.feature_width());
  }

  Program Build() {
    if (part_ == TowerPart::kBody)
      to_.Keep(residual_);
    else
      EmbedPatches();
    if (part_ == TowerPart::kFront) {
      to_.Emit(StoreImage{.x = residual_, .width = hidden_});
      to_.program().results_begin = to_.next();
      return std::move(to_.program());
    }
    MakeRopeTable();
    const auto layers = static_cast<size_t>(spec_.num_layers);
    size_t level = 0;
    for (size_t i = 0; i < layers; ++i) {
      to_.InLayer([&] {
        RunLayer(i);
        if (level < spec_.levels.size() && spec_.levels[level].layer == static_cast<int64_t>(i)) {
          Project(spec_.levels[level].projector, weights_.levels[level],
                  static_cast<int64_t>(level) + 1, {.data = residual_, .width = hidden_});
          to_.Emit(Regroup{});
          ++level;
        }
      });
    }
    const bool has_features = !spec_.features.empty();
    Project(spec_.projector, weights_.projector, 0,
            {.data = has_features ? features_ : residual_, .width = spec_.feature_width()});
    to_.program().results_begin = to_.next();
    return std::move(to_.program());
  }

 private:
  // The rows that the next step of a projector reads.
  struct Current {
    BufferId data = kNone;
    ElementType type = ElementType::kF32;
    int64_t width = 0;
  };

  // Returns a buffer for rows that products read, either directly or after clipping.
  BufferId Inputs(std::string_view name, Extent extent, int64_t width) {
    return to_.Array(name, extent, width * BitsPerElement(in_type_) / 8);
  }

  program::Project& Multiply(const LinearWeights& weights, BufferId x, BufferId y, int64_t n,
                             int64_t k) {
    program::Project& product = to_.Multiply(weights, {.data = x}, y, n, k);
    product.x_type = type_;
    product.is_plain = true;
    return product;
  }

  void EmbedPatches() {
    const int64_t numbers = spec_.patch_numbers();
    const BufferId patches = to_.Inputs("patches", Extent::kStep, numbers);
    to_.Emit(TakePatches{.out = patches,
                         .type = type_,
                         .width = numbers,
                         .shift = spec_.shift,
                         .scale = spec_.scale});
    Multiply(weights_.patch, patches, residual_, hidden_, numbers);
    if (!spec_.patch_norm.empty()) {
      to_.Emit(NormRows{.x = residual_,
                        .weight = to_.Vector(weights_.patch_norm.weight, true),
                        .width = hidden_});
    }
    if (spec_.positions != TowerSpec::Positions::kNone) {
      to_.Emit(AddPositions{.x = residual_,
                            .table = to_.Vector(weights_.positions, true),
                            .last = to_.Vector(weights_.class_row, spec_.has_class),
                            .width = hidden_});
    }
    if (spec_.first_norm.empty()) return;
    if (spec_.norm == NormSpec::Kind::kLayer) {
      to_.Emit(LayerNorm{.residual = residual_,
                         .weight = to_.Vector(weights_.first_norm.weight, true),
                         .bias = to_.Vector(weights_.first_norm.bias, true),
                         .out = inputs_,
                         .type = in_type_,
                         .keeps_norm = true,
                         .width = hidden_});
    } else {
      to_.Emit(NormRows{.x = residual_,
                        .weight = to_.Vector(weights_.first_norm.weight, true),
                        .width = hidden_});
    }
  }

  void MakeRopeTable() {
    if (spec_.rope_frequencies.empty()) return;
    to_.program().rope_tables = {spec_.rope_frequencies};
    to_.program().rope_axes = {spec_.rope_axes};
    rope_ = to_.F32("rope", Extent::kStep, spec_.head_dim);
    to_.Emit(RopeTable{.table = 0, .axes = 0, .out = rope_});
  }

  // Returns a buffer for F32 rows that operators need only on the CPU.
  BufferId Scratch(std::string_view name, Extent extent, int64_t width) {
    return to_.is_device() ? kNone : to_.F32(name, extent, width);
  }

  // Adds `delta` to the residual if `adds`, and writes the norm to `inputs_`.
  void EmitNorm(const TowerNorm& norm, bool adds) {
    const BufferId delta = adds ? delta_ : kNone;
    if (spec_.norm == NormSpec::Kind::kLayer) {
      to_.Emit(LayerNorm{.residual = residual_,
                         .delta = delta,
                         .weight = to_.Vector(norm.weight, true),
                         .bias = to_.Vector(norm.bias, true),
                         .out = inputs_,
                         .scratch = Scratch("norm_scratch", Extent::kStep, hidden_),
                         .type = in_type_,
                         .width = hidden_});
    } else {
      to_.Emit(Norm{.residual = residual_,
                    .delta = delta,
                    .weight = to_.Vector(norm.weight, true),
                    .out = inputs_,
                    .type = in_type_,
                    .width = hidden_});
    }
  }

  // Scales and normalizes `delta` before it is added to the residual.
  void FinishDelta(const TowerNorm& norm, bool has_norm, const std::vector<float>& factor) {
    if (!spec_.attention_factor.empty()) {
      to_.Emit(Standardize{.x = delta_,
                           .bias = to_.Vector(weights_.zeros, true),
                           .factor = to_.Vector(factor, true),
                           .width = hidden_});
    }
    if (!has_norm) return;
    CHECK(spec_.norm == NormSpec::Kind::kRms, "norms of results are RMS norms");
    to_.Emit(NormRows{.x = delta_, .weight = to_.Vector(norm.weight, true), .width = hidden_});
  }

  // Emits products with clipped inputs and results. The results are adjacent in the rows of `y`
  // [rows, width].
  void MultiplyClipped(const std::vector<const TowerLinear*>& linears, BufferId x, int64_t k,
                       BufferId y, int64_t width, Extent extent) {
    int64_t begin = 0;
    for (const TowerLinear* linear : linears) {
      const VectorId bounds = to_.Vector(linear->bounds, true);
      const BufferId clipped = to_.F32("clipped", extent, k);
      const BufferId typed = to_.Inputs("clipped_inputs", extent, k);
      const BufferId out = to_.F32("clipped_results", extent, linear->rows);
      to_.Emit(CopyColumns{
          .from = {.buffer = x, .stride = k}, .to = {.buffer = clipped, .stride = k}, .width = k});
      to_.Emit(Clamp{.x = clipped, .width = k, .bounds = bounds, .first = 0});
      to_.Emit(Norm{.residual = clipped, .out = typed, .type = type_, .width = k});
      Multiply(linear->weights, typed, out, linear->rows, k);
      to_.Emit(Clamp{.x = out, .width = linear->rows, .bounds = bounds, .first = 2});
      to_.Emit(CopyColumns{.from = {.buffer = out, .stride = linear->rows},
                           .to = {.buffer = y, .begin = begin, .stride = width},
                           .width = linear->rows});
      begin += linear->rows;
    }
  }

  // Computes y [rows, n] from x [rows, k].
  void MultiplyAll(const std::vector<const TowerLinear*>& linears, BufferId x, BufferId y,
                   int64_t n, int64_t k, Extent extent, ElementType y_type = ElementType::kF32) {
    if (!spec_.clips) {
      Multiply(linears.front()->weights, x, y, n, k).y_type = y_type;
      return;
    }
    MultiplyClipped(linears, x, k, y, n, extent);
  }

  static std::vector<const TowerLinear*> PointersTo(const std::vector<TowerLinear>& linears) {
    std::vector<const TowerLinear*> pointers;
    for (const TowerLinear& linear : linears) pointers.push_back(&linear);
    return pointers;
  }

  void RunLayer(size_t index) {
    const TowerLayerWeights& layer = weights_.layers[index];
    EmitNorm(layer.attention_norm, /*adds=*/index > 0 && !added_);
    added_ = false;
    Attention(index);
    FinishDelta(layer.attention_after, !spec_.attention_after.empty(), layer.attention_factor);
    EmitNorm(layer.mlp_norm, /*adds=*/true);
    Mlp(layer);
    FinishDelta(layer.mlp_after, !spec_.mlp_after.empty(), layer.mlp_factor);
    // The next operators read the residual itself, so `delta` is added at this point.
    const bool is_last = index + 1 == weights_.layers.size();
    bool has_level = false;
    for (const TowerLevel& level : spec_.levels)
      has_level = has_level || level.layer == static_cast<int64_t>(index);
    const auto feature = std::ranges::find(spec_.features, static_cast<int64_t>(index));
    const bool is_feature = feature != spec_.features.end();
    if (is_last || has_level || is_feature) {
      to_.Emit(Add{.x = residual_, .y = delta_, .width = hidden_});
      added_ = true;
    }
    if (!is_feature) return;
    to_.Emit(CopyColumns{.from = {.buffer = residual_, .stride = hidden_},
                         .to = {.buffer = features_,
                                .begin = (feature - spec_.features.begin()) * hidden_,
                                .stride = spec_.feature_width()},
                         .width = hidden_});
  }

  void Attention(size_t index) {
    const TowerLayerWeights& layer = weights_.layers[index];
    AttentionSpec attention;
    attention.num_heads = attention.num_kv_heads = static_cast<int>(spec_.heads);
    attention.head_dim = static_cast<int>(spec_.head_dim);
    attention.rope = rope_ != kNone;
    attention.rope_style = spec_.rope_style;
    attention.scale = spec_.attention_scale;
    if (!spec_.q_norm.empty()) {
      attention.qk_norm = QkNorm::kBeforeRope;
      attention.norms_values = spec_.norms_values;
    }
    const AttentionId id = to_.Attention(attention);
    const BufferId qkv = to_.Wide("qkv", Extent::kStep, attention.qkv_width());
    MultiplyAll(PointersTo(layer.qkv), inputs_, qkv, attention.qkv_width(), hidden_, Extent::kStep,
                to_.wide());
    const BufferId q =
        to_.is_device() ? to_.Array("q", Extent::kStep, attention.q_width() * 2) : kNone;
    const int64_t cache_layer = spec_.whole[index] ? kTowerWhole : kTowerWindows;
    to_.Emit(RopeAppend{.attention = id,
                        .cache_layer = cache_layer,
                        .x = qkv,
                        .cos_sin = rope_,
                        .q_norm = to_.Vector(layer.q_norm, !spec_.q_norm.empty()),
                        .k_norm = to_.Vector(layer.k_norm, !spec_.k_norm.empty()),
                        .v_norm = to_.Vector(layer.v_norm, spec_.norms_values),
                        .x_type = to_.wide(),
                        .q = q});
    const ModelOptions& options = to_.options();
    const int64_t scratch_bytes =
        to_.is_device() ? 0
                        : kernels::AttentionScratchBytes(
                              KvLayoutOf(attention, options), attention.num_heads, options.max_rows,
                              options.max_slices, options.max_context, num_threads_);
    to_.Emit(Attend{.attention = id,
                    .cache_layer = cache_layer,
                    .q = to_.is_device() ? q : qkv,
                    .out = attended_,
                    .type = in_type_,
                    .allows_bf16 = type_ == ElementType::kBF16,
                    .scratch = to_.Array("attention_scratch", Extent::kOnce, scratch_bytes),
                    .scratch_bytes = scratch_bytes,
                    .is_bidirectional = true});
    MultiplyAll({&layer.output}, attended_, delta_, hidden_, width_, Extent::kStep);
  }

  static Gate GateOf(TowerActivation activation, bool is_gated) {
    switch (activation) {
      case TowerActivation::kSilu: return is_gated ? Gate::kSilu : Gate::kRule;
      case TowerActivation::kGeluTanh: return is_gated ? Gate::kGeluTanh : Gate::kRule;
      case TowerActivation::kQuickGelu: return Gate::kRule;
      case TowerActivation::kGelu: break;
    }
    return is_gated ? Gate::kGeluErf : Gate::kPlainGelu;
  }
  static kernels::ActivationRule RuleOf(TowerActivation activation) {
    switch (activation) {
      case TowerActivation::kGeluTanh: return {.kind = kernels::ActivationKind::kGeluTanh};
      case TowerActivation::kQuickGelu: return {.kind = kernels::ActivationKind::kQuickGelu};
      default: return {.kind = kernels::ActivationKind::kSilu};
    }
  }

  void Mlp(const TowerLayerWeights& layer) {
    const int64_t width = spec_.intermediate;
    const bool is_gated = !spec_.gate.empty();
    const int64_t inner_width = is_gated ? 2 * width : width;
    // Clipping copies all rows of the step, not only a part of them.
    const Extent extent = spec_.clips ? Extent::kStep : Extent::kPart;
    const BufferId inner = to_.Wide(spec_.clips ? "all_inner" : "inner", extent, inner_width);
    const BufferId activated = Inputs(spec_.clips ? "all_activated" : "activated", extent, width);
    const auto emit = [&] {
      MultiplyAll(PointersTo(layer.up), inputs_, inner, inner_width, hidden_, extent, to_.wide());
      to_.Emit(GateMul{.gate = GateOf(spec_.activation, is_gated),
                       .x = inner,
                       .y = activated,
                       .type = in_type_,
                       .width = width,
                       .rule = RuleOf(spec_.activation),
                       .is_gated = is_gated,
                       .x_type = to_.wide()});
      MultiplyAll({&layer.down}, activated, delta_, hidden_, width, extent);
    };
    if (spec_.clips)
      emit();
    else
      to_.InParts(to_.program().limits.part, 1, emit);
  }

  // --- Projectors ---

  Extent RowsExtent() const { return is_merged_ ? Extent::kWanted : Extent::kStep; }
  std::string Name(const char* what) const {
    return fmt::format("{}_{}_{}", is_merged_ ? "merged" : "patch", what, level_);
  }
  BufferId Step(size_t index, int64_t width) {
    return to_.F32(Name(fmt::format("step_{}", index).c_str()), RowsExtent(), width);
  }

  // Converts rows to `type_`, which products read.
  BufferId Typed(const Current& current) {
    if (current.type == type_) return current.data;
    const BufferId typed = to_.Inputs(Name("inputs"), RowsExtent(), current.width);
    to_.Emit(Norm{.residual = current.data, .out = typed, .type = type_, .width = current.width});
    return typed;
  }

  void Project(const std::vector<ProjectorStep>& steps, const ProjectorWeights& weights,
               int64_t level, Current now) {
    level_ = level;
    is_merged_ = false;
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool is_activated = i + 1 < steps.size() && steps[i + 1].kind == StepKind::kActivate;
      now = RunStep(steps[i], weights[i], i, now, is_activated ? to_.wide() : ElementType::kF32);
    }
    to_.Emit(StoreImage{.x = now.data, .width = now.width, .begin = level * spec_.out_width});
  }

  // `y_type`: type of a product's results.
  Current RunStep(const ProjectorStep& step, const ProjectorStepWeights& weights, size_t index,
                  const Current& x, ElementType y_type) {
    switch (step.kind) {
      case StepKind::kLayerNorm: {
        const BufferId out = Step(index, x.width);
        to_.Emit(LayerNorm{.residual = x.data,
                           .weight = to_.Vector(weights.norm.weight, true),
                           .bias = to_.Vector(weights.norm.bias, true),
                           .out = out,
                           .scratch = Scratch(Name("scratch"), RowsExtent(), x.width),
                           .width = x.width,
                           .eps = step.eps});
        return {.data = out, .width = x.width};
      }
      case StepKind::kRmsNorm:
      case StepKind::kPlainRmsNorm:
        to_.Emit(NormRows{.x = x.data,
                          .weight = to_.Vector(weights.norm.weight, true),
                          .width = x.width,
                          .eps = step.eps});
        return x;
      case StepKind::kStandardize:
        to_.Emit(Standardize{.x = x.data,
                             .bias = to_.Vector(weights.norm.bias, true),
                             .factor = to_.Vector(weights.norm.weight, true),
                             .width = x.width});
        return x;
      case StepKind::kScale:
        to_.Emit(Scale{.x = x.data, .width = x.width, .factor = step.factor});
        return x;
      case StepKind::kConcatenate:
        EmitRegroup();
        return {.data = x.data, .width = x.width * spec_.group()};
      case StepKind::kConcatByNumber:
      case StepKind::kMean: return Merge(step.kind == StepKind::kMean, index, x);
      case StepKind::kLinear: {
        const BufferId out = Step(index, step.width);
        Multiply(weights.linear, Typed(x), out, step.width, x.width).y_type = y_type;
        return {.data = out, .type = y_type, .width = step.width};
      }
      case StepKind::kGated: {
        const BufferId both = Step(index, 2 * step.width);
        Multiply(weights.linear, Typed(x), both, 2 * step.width, x.width).y_type = to_.wide();
        return Activate(step, index, both, step.width, /*is_gated=*/true);
      }
      case StepKind::kActivate: break;
    }
    const BufferId read = x.type == to_.wide() ? x.data : Typed(x);
    return Activate(step, index, read, x.width, /*is_gated=*/false);
  }

  Current Activate(const ProjectorStep& step, size_t index, BufferId x, int64_t width,
                   bool is_gated) {
    const BufferId out =
        to_.Inputs(Name(fmt::format("activated_{}", index).c_str()), RowsExtent(), width);
    to_.Emit(GateMul{.gate = GateOf(step.activation, is_gated),
                     .x = x,
                     .y = out,
                     .type = type_,
                     .width = width,
                     .rule = RuleOf(step.activation),
                     .is_gated = is_gated,
                     .x_type = to_.wide()});
    return {.data = out, .type = type_, .width = width};
  }

  void EmitRegroup() {
    is_merged_ = true;
    to_.Emit(Regroup{.group = spec_.group(), .drops = spec_.has_class ? 1 : 0});
  }

  Current Merge(bool is_mean, size_t index, const Current& x) {
    EmitRegroup();
    const int64_t width = is_mean ? x.width : x.width * spec_.group();
    const BufferId out = Step(index, width);
    to_.Emit(
        MergePatches{.kind = is_mean ? MergePatches::Kind::kMean : MergePatches::Kind::kByNumber,
                     .x = x.data,
                     .out = out,
                     .width = x.width,
                     .group = spec_.group()});
    return {.data = out, .width = width};
  }

  const TowerSpec& spec_;
  const TowerWeights& weights_;
  const int num_threads_;
  const TowerPart part_;
  const int64_t hidden_, width_;
  const ElementType type_;     // type of products' inputs
  const ElementType in_type_;  // type of the rows that are clipped before products read them
  Builder to_;
  BufferId features_ = kNone;  // the tower's features, F32 [rows, TowerSpec::feature_width()]
  BufferId residual_ = kNone, delta_ = kNone, inputs_ = kNone, attended_ = kNone, rope_ = kNone;
  bool added_ = false;  // whether the last delta has been added to the residual
  // The projector being emitted: its index among the results, and whether patches are already
  // merged.
  int64_t level_ = 0;
  bool is_merged_ = false;
};

}  // namespace

Program BuildTower(const TowerParts& parts) {
  return TowerBuilder(parts).Build();
}

}  // namespace sluice::program
