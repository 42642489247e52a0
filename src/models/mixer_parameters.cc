#include "models/mixer_parameters.h"

#include <utility>
#include <vector>

namespace sluice {
namespace {

using MixerKind = MixerSpec::Kind;
using Projections = MixerSpec::Projections;

// Lists this rank's parts of a mixer's tensors.
class MixerLister {
 public:
  MixerLister(std::string name, const MixerSpec& spec, const RankPlace& place)
      : name_(std::move(name)),
        spec_(spec),
        cut_(CutMixer(spec, place.tensor_rank, place.tensor_size)) {}

  std::string Name(const char* module) const { return name_ + "." + module; }

  // These functions return the rows of this rank's key heads and value heads in a tensor whose
  // heads begin at row `first`.
  RowRange Keys(int64_t first) const { return Of(cut_.key_heads, spec_.key_dim, first); }
  RowRange Values(int64_t first) const { return Of(cut_.heads, spec_.head_dim, first); }
  RowRange Heads(int64_t first) const { return Of(cut_.heads, 1, first); }

  static ParameterPart Part(std::string name, int64_t rows, const RowRange& held) {
    if (held.begin == 0 && held.end == rows) return {std::move(name), rows};
    return {std::move(name), rows, held};
  }

  std::vector<ParameterPart> In() const {
    const int64_t keys = spec_.keys_width(), values = spec_.values_width();
    const std::string one = Name("in_proj");
    if (spec_.kind == MixerKind::kShortConvolution) {
      return {Part(one, 3 * values, Values(2 * values)), Part(one, 3 * values, Values(0)),
              Part(one, 3 * values, Values(values))};
    }
    if (spec_.kind == MixerKind::kStateSpace) {  // order in the file: z, x, B, C, steps
      const int64_t rows = spec_.InputRows();
      return {Part(one, rows, Keys(2 * values + keys)), Part(one, rows, Keys(2 * values)),
              Part(one, rows, Values(values)), Part(one, rows, Values(0)),
              Part(one, rows, Heads(2 * values + 2 * keys))};
    }
    switch (spec_.projections) {
      case Projections::kOne:
      case Projections::kByKeyHead: return ByKeyHead();
      case Projections::kByKind: {
        const std::string qkv = Name("in_proj_qkv");
        const int64_t rows = spec_.conv_channels();
        return {Part(qkv, rows, Keys(0)), Part(qkv, rows, Keys(keys)),
                Part(qkv, rows, Values(2 * keys)), Part(Name("in_proj_z"), values, Values(0))};
      }
      case Projections::kOneByKind: {
        const int64_t rows = RowsOfOne();
        return {Part(one, rows, Keys(0)), Part(one, rows, Keys(keys)),
                Part(one, rows, Values(2 * keys)), Part(one, rows, Values(2 * keys + values))};
      }
      case Projections::kEach: break;
    }
    std::vector<ParameterPart> parts = {Part(Name("q_proj"), keys, Keys(0)),
                                        Part(Name("k_proj"), keys, Keys(0)),
                                        Part(Name("v_proj"), values, Values(0))};
    if (spec_.low_rank == 0) parts.push_back(Part(Name("g_proj"), values, Values(0)));
    return parts;
  }

  // Returns the rows of the keys' decays in this module or vector.
  ParameterPart Decays(const char* module) const {
    return Part(Name(module), spec_.decays_width(), Of(cut_.heads, spec_.key_dim, 0));
  }
  ParameterPart Gates(const char* module) const {
    return Part(Name(module), spec_.values_width(), Values(0));
  }

  // Returns the rows of the delta rule's rates and decays.
  std::vector<ParameterPart> Steps() const {
    const int64_t heads = spec_.num_heads;
    switch (spec_.projections) {
      case Projections::kOne:
      case Projections::kByKeyHead: {
        const int64_t group = heads / spec_.num_key_heads;
        std::vector<ParameterPart> parts;
        for (const int64_t half : {0, 1})
          AddOfKeyHeads("in_proj_ba", 2 * group, half * group, group, parts);
        return parts;
      }
      case Projections::kByKind:
        return {Part(Name("in_proj_b"), heads, Heads(0)), Part(Name("in_proj_a"), heads, Heads(0))};
      case Projections::kOneByKind: {
        const int64_t rows = RowsOfOne(), first = rows - 2 * heads;
        return {Part(Name("in_proj"), rows, Heads(first)),
                Part(Name("in_proj"), rows, Heads(first + heads))};
      }
      case Projections::kEach: break;
    }
    const ParameterPart rates = Part(Name("b_proj"), heads, Heads(0));
    if (spec_.low_rank > 0) return {rates};
    if (spec_.decays_keys) return {rates, Decays("f_proj")};
    return {rates, Part(Name("a_proj"), heads, Heads(0))};
  }

  // Returns the convolution's channels: q, k and v; for Mamba-2 C, B and x, which are stored in the
  // order x, B, C.
  std::vector<ParameterPart> Channels(const std::string& tensor, int64_t each) const {
    const int64_t keys = spec_.keys_width(), values = spec_.values_width();
    const int64_t rows = spec_.conv_channels();
    std::vector<ParameterPart> parts;
    const auto add = [&](const RowRange& held, float factor) {
      if (held.size() == 0) return;
      parts.push_back(Part(tensor, rows * each, {held.begin * each, held.end * each}));
      parts.back().factor = factor;
    };
    if (spec_.kind != MixerKind::kStateSpace) {
      add(Keys(0), 1);
      add(Keys(keys), 1);
      add(Values(2 * keys), 1);
      return parts;
    }
    const bool is_weight = each != 1;  // input_factors do not apply to biases
    add(Keys(values + keys), is_weight ? spec_.input_factors[3] : 1);
    add(Keys(values), is_weight ? spec_.input_factors[2] : 1);
    add(Values(0), is_weight ? spec_.input_factors[1] : 1);
    return parts;
  }

 private:
  static RowRange Of(const RowRange& heads, int64_t width, int64_t first) {
    return {first + heads.begin * width, first + heads.end * width};
  }

  // Returns the number of rows of in_proj, with Projections::kOneByKind.
  int64_t RowsOfOne() const {
    return spec_.conv_channels() + spec_.values_width() + 2 * int64_t{spec_.num_heads};
  }

  // Adds rows [first, first + count) of each of this rank's key heads, which have `each` rows in
  // `module`.
  void AddOfKeyHeads(const char* module, int64_t each, int64_t first, int64_t count,
                     std::vector<ParameterPart>& parts) const {
    for (int64_t head = cut_.key_heads.begin; head < cut_.key_heads.end; ++head) {
      const int64_t begin = head * each + first;
      parts.push_back(
          Part(Name(module), each * spec_.num_key_heads, RowRange{begin, begin + count}));
    }
  }
  std::vector<ParameterPart> ByKeyHead() const {
    const int64_t key = spec_.key_dim;
    const int64_t values = spec_.values_width() / spec_.num_key_heads;
    const int64_t each = 2 * key + 2 * values;
    std::vector<ParameterPart> parts;
    AddOfKeyHeads("in_proj_qkvz", each, 0, key, parts);
    AddOfKeyHeads("in_proj_qkvz", each, key, key, parts);
    AddOfKeyHeads("in_proj_qkvz", each, 2 * key, values, parts);
    AddOfKeyHeads("in_proj_qkvz", each, 2 * key + values, values, parts);
    return parts;
  }

  const std::string name_;
  const MixerSpec& spec_;
  const MixerCut cut_;
};

void AddProjection(ParameterList& list, const std::vector<ParameterPart>& parts, int64_t cols,
                   bool has_bias, LinearWeights& weights) {
  list.matrices.push_back({.parts = parts,
                           .cols = cols,
                           .target = &weights.matrix,
                           .inputs = &weights.inputs,
                           .linear = &weights});
  if (!has_bias) return;
  VectorParameter vector{
      .kind = VectorParameter::Kind::kBias, .parts = parts, .target = &weights.bias};
  for (ParameterPart& part : vector.parts) part.name += ".bias";
  list.vectors.push_back(std::move(vector));
}

}  // namespace

void AddMixer(ParameterList& list, const std::string& name, const MixerSpec& spec,
              int64_t hidden_size, const RankPlace& place, MixerWeights& weights) {
  const MixerLister lister(name, spec, place);
  const bool is_short = spec.kind == MixerKind::kShortConvolution;
  const bool is_each = spec.projections == Projections::kEach;
  AddProjection(list, lister.In(), hidden_size, spec.has_bias, weights.in);
  if (spec.kind == MixerKind::kDeltaRule)
    AddProjection(list, lister.Steps(), hidden_size, /*has_bias=*/false, weights.steps);
  if (spec.low_rank > 0) {
    const auto pair = [&](const char* first, LinearWeights& down, ParameterPart second,
                          LinearWeights& up) {
      AddProjection(list, {{lister.Name(first), spec.low_rank}}, hidden_size, false, down);
      AddProjection(list, {std::move(second)}, spec.low_rank, false, up);
    };
    pair("f_a_proj", weights.decay_down, lister.Decays("f_b_proj"), weights.decay_up);
    pair("g_a_proj", weights.gate_down, lister.Gates("g_b_proj"), weights.gate_up);
  }
  const auto add = [&](std::vector<ParameterPart> parts, std::vector<float>& target,
                       VectorParameter::Kind kind =
                           VectorParameter::Kind::kBias) -> VectorParameter& {
    list.vectors.push_back({.kind = kind, .parts = std::move(parts), .target = &target});
    return list.vectors.back();
  };
  const std::string conv = lister.Name(is_short ? "conv" : "conv1d");
  const std::string weight = is_each ? lister.Name("q_conv1d.weight") : conv + ".weight";
  VectorParameter& taps = add(lister.Channels(weight, spec.conv_width), weights.conv);
  taps.taps = spec.conv_width;
  if (is_each) {
    taps.joined = {weight, lister.Name("k_conv1d.weight"), lister.Name("v_conv1d.weight")};
  }
  if (spec.conv_bias) add(lister.Channels(conv + ".bias", 1), weights.conv_bias);
  if (!is_short) {
    const auto each_head = [&](const char* tensor, std::vector<float>& target) {
      add({MixerLister::Part(lister.Name(tensor), spec.num_heads, lister.Heads(0))}, target);
    };
    each_head("A_log", weights.a_log);
    if (spec.decays_keys)
      add({lister.Decays("dt_bias")}, weights.step_bias);
    else
      each_head("dt_bias", weights.step_bias);
    if (spec.kind == MixerKind::kStateSpace) each_head("D", weights.skip);
  }
  const std::string norm = lister.Name(!spec.norm_module.empty() ? spec.norm_module.c_str()
                                       : is_each                 ? "o_norm"
                                                                 : "norm") +
                           ".weight";
  if (spec.norm == MixerSpec::Norm::kOfHeads)
    add({{norm, spec.head_dim}}, weights.norm, VectorParameter::Kind::kNorm);
  if (spec.norm == MixerSpec::Norm::kOfGroups) {
    add({MixerLister::Part(norm, spec.values_width(), lister.Values(0))}, weights.norm,
        VectorParameter::Kind::kNorm);
  }
  const RowRange rows = CutRows(hidden_size, place.tensor_rank, place.tensor_size);
  const char* output = is_each ? "o_proj" : "out_proj";
  if (!spec.output_projection.empty()) output = spec.output_projection.c_str();
  AddProjection(list, {MixerLister::Part(lister.Name(output), hidden_size, rows)},
                spec.values_width(), spec.output_bias, weights.output);
}

}  // namespace sluice
