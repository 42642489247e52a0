#include "models/tower/tower_weights.h"

#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

using StepKind = ProjectorStep::Kind;

class TowerLister {
 public:
  TowerLister(const TowerSpec& spec, TowerWeights& weights) : spec_(spec), weights_(weights) {}

  ParameterList List() && {
    AddPatches();
    if (!spec_.patch_norm.empty()) {
      list_.vectors.push_back({.kind = VectorParameter::Kind::kNorm,
                               .parts = {{spec_.patch_norm + ".weight", spec_.hidden}},
                               .target = &weights_.patch_norm.weight});
    }
    if (!spec_.attention_factor.empty())
      weights_.zeros.assign(static_cast<size_t>(spec_.hidden), 0.0F);
    if (!spec_.first_norm.empty()) AddNorm(spec_.first_norm, spec_.hidden, weights_.first_norm);
    weights_.layers.resize(static_cast<size_t>(spec_.num_layers));
    for (size_t i = 0; i < weights_.layers.size(); ++i)
      AddLayer(fmt::format("{}{}.", spec_.layer_prefix, i), weights_.layers[i]);
    AddProjector(spec_.projector, weights_.projector, spec_.feature_width());
    if (!spec_.newline_tensor.empty())
      AddVector(spec_.newline_tensor, {spec_.out_width}, weights_.newline, spec_.newline_factor);
    weights_.levels.resize(spec_.levels.size());
    for (size_t i = 0; i < spec_.levels.size(); ++i)
      AddProjector(spec_.levels[i].projector, weights_.levels[i], spec_.hidden);
    return std::move(list_);
  }

 private:
  void AddVector(const std::string& tensor, std::vector<int64_t> shape, std::vector<float>& target,
                 float factor = 1) {
    int64_t rows = 1;
    for (const int64_t size : shape) rows *= size;
    list_.vectors.push_back({.kind = VectorParameter::Kind::kBias,
                             .parts = {{tensor, rows}},
                             .target = &target,
                             .factor = factor,
                             .shape = std::move(shape)});
  }

  void AddNorm(const std::string& module, int64_t width, TowerNorm& norm, float offset = 0,
               bool is_layer_norm = false) {
    list_.vectors.push_back({.kind = VectorParameter::Kind::kNorm,
                             .parts = {{module + ".weight", width}},
                             .target = &norm.weight,
                             .offset = offset});
    if (is_layer_norm || spec_.norm == NormSpec::Kind::kLayer)
      AddVector(module + ".bias", {width}, norm.bias);
  }
  void AddLayerNorm(const std::string& module, TowerNorm& norm) {
    if (!module.empty()) AddNorm(module, spec_.hidden, norm);
  }

  void AddLinear(std::vector<ParameterPart> modules, int64_t cols, bool has_bias,
                 TowerLinear& linear) {
    for (const ParameterPart& module : modules) linear.rows += module.held_rows().size();
    std::vector<ParameterPart> biases = modules;
    if (spec_.clips) {
      // With clipping, there is a single module; its rows may be in several pieces.
      VectorParameter bounds{.kind = VectorParameter::Kind::kBias,
                             .parts = {},
                             .target = &linear.bounds,
                             .allows_infinite = true};
      for (const char* bound : {"input_min", "input_max", "output_min", "output_max"})
        bounds.parts.push_back({fmt::format("{}.{}", modules.front().name, bound), 1});
      list_.vectors.push_back(std::move(bounds));
    }
    for (ParameterPart& module : modules) module.name += spec_.inner_module;
    list_.matrices.push_back({.parts = std::move(modules),
                              .cols = cols,
                              .target = &linear.weights.matrix,
                              .inputs = &linear.weights.inputs});
    if (!has_bias) return;
    for (ParameterPart& bias : biases) bias.name += ".bias";
    list_.vectors.push_back({.kind = VectorParameter::Kind::kBias,
                             .parts = std::move(biases),
                             .target = &linear.weights.bias});
  }

  // Adds one linear layer for all modules or, with clipping, one for each module.
  void AddLinears(const std::vector<std::vector<ParameterPart>>& modules, int64_t cols,
                  bool has_bias, std::vector<TowerLinear>& linears) {
    if (spec_.clips) {
      linears.resize(modules.size());
      for (size_t i = 0; i < modules.size(); ++i) AddLinear(modules[i], cols, has_bias, linears[i]);
      return;
    }
    std::vector<ParameterPart> all;
    for (const auto& parts : modules) all.insert(all.end(), parts.begin(), parts.end());
    linears.resize(1);
    AddLinear(std::move(all), cols, has_bias, linears.front());
  }

  // Returns the rows of q or k heads in the order that is needed to rotate whole heads: the first
  // and third quarters of each head, then the second and fourth.
  std::vector<ParameterPart> InRopeOrder(const std::string& name, int64_t heads) const {
    const int64_t rows = heads * spec_.head_dim, quarter = spec_.head_dim / 4;
    if (!spec_.rotates_halves) return {{name, rows}};
    std::vector<ParameterPart> parts;
    for (int64_t head = 0; head < heads; ++head) {
      for (const int64_t which : {0, 2, 1, 3}) {
        const int64_t first = head * spec_.head_dim + which * quarter;
        parts.push_back({name, rows, RowRange{first, first + quarter}});
      }
    }
    return parts;
  }

  void AddPatches() {
    const std::string tensor = spec_.patch_module + ".weight";
    MatrixParameter patch{.parts = {{spec_.patch_module, spec_.hidden}},
                          .cols = spec_.patch_numbers(),
                          .target = &weights_.patch.matrix,
                          .inputs = &weights_.patch.inputs};
    if (spec_.patch_shape.size() > 2) {
      patch.parts.front().name = tensor;
      patch.shape = spec_.patch_shape;
    }
    list_.matrices.push_back(std::move(patch));
    if (spec_.patch_bias)
      AddVector(spec_.patch_module + ".bias", {spec_.hidden}, weights_.patch.bias);
    if (spec_.has_class) AddVector(spec_.class_tensor, {spec_.hidden}, weights_.class_row);
    if (spec_.positions != TowerSpec::Positions::kNone)
      AddVector(spec_.position_tensor, spec_.position_shape, weights_.positions);
  }

  void AddLayer(const std::string& name, TowerLayerWeights& layer) {
    const int64_t hidden = spec_.hidden, width = spec_.heads * spec_.head_dim;
    AddLayerNorm(name + spec_.attention_norm, layer.attention_norm);
    if (!spec_.attention_after.empty())
      AddLayerNorm(name + spec_.attention_after, layer.attention_after);
    if (spec_.qkv.empty()) {
      AddLinears({InRopeOrder(name + spec_.q, spec_.heads),
                  InRopeOrder(name + spec_.k, spec_.heads),
                  {{name + spec_.v, width}}},
                 hidden, spec_.attention_bias, layer.qkv);
    } else {
      AddLinears({{{name + spec_.qkv, 3 * width}}}, hidden, spec_.attention_bias, layer.qkv);
    }
    if (!spec_.q_norm.empty()) {
      for (const auto& [module, target] :
           {std::pair{spec_.q_norm, &layer.q_norm}, std::pair{spec_.k_norm, &layer.k_norm}}) {
        list_.vectors.push_back({.kind = VectorParameter::Kind::kNorm,
                                 .parts = InRopeOrder(name + module + ".weight", 1),
                                 .target = target});
      }
      if (spec_.norms_values) layer.v_norm.assign(static_cast<size_t>(spec_.head_dim), 1.0F);
    }
    AddLinear({{name + spec_.output, hidden}}, width, spec_.output_bias, layer.output);
    AddLayerNorm(name + spec_.mlp_norm, layer.mlp_norm);
    if (!spec_.mlp_after.empty()) AddLayerNorm(name + spec_.mlp_after, layer.mlp_after);
    const std::vector<ParameterPart> up = {{name + spec_.up, spec_.intermediate}};
    if (spec_.gate.empty())
      AddLinears({up}, hidden, spec_.mlp_bias, layer.up);
    else
      AddLinears({{{name + spec_.gate, spec_.intermediate}}, up}, hidden, spec_.mlp_bias, layer.up);
    AddLinear({{name + spec_.down, hidden}}, spec_.intermediate, spec_.mlp_bias, layer.down);
    if (!spec_.attention_factor.empty()) {
      AddVector(name + spec_.attention_factor, {hidden}, layer.attention_factor);
      AddVector(name + spec_.mlp_factor, {hidden}, layer.mlp_factor);
    }
  }

  void AddProjector(const std::vector<ProjectorStep>& steps, ProjectorWeights& weights,
                    int64_t width) {
    weights.resize(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const ProjectorStep& step = steps[i];
      ProjectorStepWeights& own = weights[i];
      switch (step.kind) {
        case StepKind::kLayerNorm:
          AddNorm(step.module, width, own.norm, step.offset, /*is_layer_norm=*/true);
          break;
        case StepKind::kRmsNorm:
          list_.vectors.push_back({.kind = VectorParameter::Kind::kNorm,
                                   .parts = {{step.module + ".weight", width}},
                                   .target = &own.norm.weight,
                                   .offset = step.offset});
          break;
        case StepKind::kPlainRmsNorm:
          own.norm.weight.assign(static_cast<size_t>(width), 1.0F);
          break;
        case StepKind::kStandardize:
          AddVector(step.module + "_scale", {width}, own.norm.weight);
          AddVector(step.module + "_bias", {width}, own.norm.bias);
          break;
        case StepKind::kConcatenate:
        case StepKind::kConcatByNumber: width *= spec_.group(); break;
        case StepKind::kLinear:
        case StepKind::kGated:
          AddProjection(step, width, own.linear);
          width = step.width;
          break;
        default: break;
      }
    }
  }

  void AddProjection(const ProjectorStep& step, int64_t cols, LinearWeights& weights) {
    std::vector<ParameterPart> parts;
    if (step.holds_gate) {
      const int64_t rows = 2 * step.width;
      parts = {{step.module, rows, RowRange{step.width, rows}},
               {step.module, rows, RowRange{0, step.width}}};
    } else {
      if (!step.gate.empty()) parts.push_back({step.gate, step.width});
      parts.push_back({step.module, step.width});
    }
    MatrixParameter matrix{
        .parts = parts, .cols = cols, .target = &weights.matrix, .inputs = &weights.inputs};
    if (step.is_transposed) {
      matrix.shape = {cols, step.width};
      matrix.is_transposed = true;
    }
    if (!step.shape.empty()) {
      matrix.parts.front().name = step.module + ".weight";
      matrix.shape = step.shape;
    }
    list_.matrices.push_back(std::move(matrix));
    if (!step.has_bias) return;
    if (!step.holds_gate) return AddVector(step.module + ".bias", {step.width}, weights.bias);
    for (ParameterPart& part : parts) part.name += ".bias";
    list_.vectors.push_back(
        {.kind = VectorParameter::Kind::kBias, .parts = std::move(parts), .target = &weights.bias});
  }

  const TowerSpec& spec_;
  TowerWeights& weights_;
  ParameterList list_;
};

}  // namespace

ParameterList ListTowerParameters(const TowerSpec& spec, TowerWeights& weights) {
  return TowerLister(spec, weights).List();
}

bool HoldsTower(const TowerSpec& spec, const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  const auto first = tensors.lower_bound(spec.patch_module);
  return first != tensors.end() && first->first.starts_with(spec.patch_module);
}

}  // namespace sluice
