#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/attention.h"
#include "models/kv_layout.h"
#include "models/program/decoder_builder.h"

namespace sluice::program {
namespace {

GateMul RuleOf(kernels::ActivationKind kind, bool is_gated, float limit) {
  return {.gate = Gate::kRule, .rule = {.kind = kind, .limit = limit}, .is_gated = is_gated};
}

// `limit`: as ActivationRule::limit. `has_factors`: whether its gain and offset have effect.
GateMul GateOf(Activation activation, bool is_gated, float limit, bool has_factors) {
  using kernels::ActivationKind;
  const bool is_common = is_gated && limit == 0 && !has_factors;
  switch (activation) {
    case Activation::kSilu:
      return is_common ? GateMul{.gate = Gate::kSilu}
                       : RuleOf(ActivationKind::kSilu, is_gated, limit);
    case Activation::kGeluTanh:
      return is_common ? GateMul{.gate = Gate::kGeluTanh}
                       : RuleOf(ActivationKind::kGeluTanh, is_gated, limit);
    case Activation::kGelu:
      CHECK(limit == 0, "GELU by erf has no limit");
      return {.gate = is_gated ? Gate::kGeluErf : Gate::kPlainGelu};
    case Activation::kRelu: return RuleOf(ActivationKind::kRelu, is_gated, limit);
    case Activation::kRelu2: return RuleOf(ActivationKind::kRelu2, is_gated, limit);
    case Activation::kXielu: return RuleOf(ActivationKind::kXielu, is_gated, limit);
    case Activation::kClampedSwiglu: break;
  }
  return {.gate = Gate::kClampedSwiglu};
}

// Returns the gate of an MLP or of experts.
template <typename Spec>
GateMul GateOf(const Spec& spec) {
  const bool has_factors = spec.gain != 1 || spec.up_offset != 0;
  GateMul gate = GateOf(spec.activation, spec.is_gated(), spec.limit, has_factors);
  gate.rule.limits_input = spec.limits_input;
  gate.rule.gain = spec.gain;
  gate.rule.factor_offset = spec.up_offset;
  return gate;
}

}  // namespace

void DecoderBuilder::RunMlp(size_t index) {
  const LayerSpec& layer = share_.layers[index];
  if (!layer.has_mlp()) return;
  const LayerWeights& weights = weights_.layers[index];
  CollapseStreams(weights.mlp_streams);
  // On the CPU, all layers of models with experts read F32, because routers read F32.
  const bool has_mlp = layer.mlp.intermediate_size > 0;
  Norm* const norm = EmitRowNorm(weights.mlp_norms.before, weights.mlp_norms.before_bias,
                                 !layer.mlp_norms.before.empty(), has_delta_ && !layer.is_parallel,
                                 has_mlp ? &weights.mlp.gate_up : nullptr, Normed());
  if (norm != nullptr) norm->eps_factor = layer.mlp_norms.eps_factor;
  if (to_.is_device() && layer.moe && !layer.moe->own_norms) norm->out_f32 = RouterRows();
  if (layer.is_parallel && has_delta_) to_.Emit(Add{.x = residual_, .y = delta_, .width = hidden_});
  has_delta_ = true;
  if (!layer.moe) {
    DenseMlp(index);
    GatherDelta();
  } else if (layer.moe->own_norms) {
    MoeWithOwnNorms(index);
  } else {
    EmitRoute(index);
    if (has_mlp) {
      DenseMlp(index);
      GateShared(index);
    }
    if (layer.moe->latent)
      LatentExperts(index, has_mlp);
    else
      Experts(index, has_mlp, own_delta_);
    GatherDelta();
  }
  if (layer.moe && layer.moe->own_norms && to_.is_device()) return;
  LeaveSublayer(weights.mlp_norms.after, !layer.mlp_norms.after.empty());
}

BufferId DecoderBuilder::RouterRows() {
  return to_.is_device() ? to_.F32("normed_f32", Extent::kStep, hidden_) : Normed().data;
}

RowsIn DecoderBuilder::EmitGate(GateMul gate, const Reader& reader, std::string_view name,
                                Extent extent, int64_t all, bool is_normed) {
  const bool later = is_shared_ && to_.is_device() && to_.device().rounds_whole_rows;
  const RowsIn whole =
      is_normed ? RowsIn{.data = to_.F32(name, extent, all)} : to_.Rows(name, extent, all);
  gate.y = whole.data;
  if (is_shared_) {
    const std::string own_name = fmt::format("own_{}", name);
    gate.y = later || is_normed ? to_.F32(own_name, extent, gate.width)
                                : to_.Inputs(own_name, extent, gate.width);
  }
  gate.reader = reader;
  gate.scales = whole.scales;
  gate.x_type = to_.wide();
  gate.is_gathered = is_shared_;
  to_.Emit(gate);
  if (!is_shared_) return whole;
  Gather gather{.count = all, .type = gate.type, .own = gate.y, .all = whole.data};
  if (to_.is_device()) {
    gather.joined = to_.Array(fmt::format("joined_{}", name), extent, all * (later ? 4 : 2));
    gather.reader = reader;
    if (later) gather.all_f32 = to_.F32(fmt::format("{}_f32", name), extent, all);
    gather.scales = whole.scales;
  }
  to_.Emit(gather);
  return whole;
}

void DecoderBuilder::DenseMlp(size_t index) {
  const MlpSpec& spec = share_.layers[index].mlp;
  const MlpWeights& weights = weights_.layers[index].mlp;
  const int64_t own = spec.intermediate_size, all = Whole(index).mlp.intermediate_size;
  const BufferId gate_up = to_.Wide("gate_up", Extent::kPart, spec.inner_width());
  GateMul gate = GateOf(spec);
  gate.x = gate_up;
  const ElementType down_type = to_.InputType(weights.down.inputs);
  const bool has_norm = !spec.inner_norm.empty();
  gate.type = has_norm ? ElementType::kF32 : down_type;
  gate.width = own;
  gate.numbers = to_.Vector(weights.activation, spec.activation == Activation::kXielu);
  to_.InParts(to_.program().limits.part, 1, [&] {
    to_.Multiply(weights.gate_up, Normed(), gate_up, spec.inner_width(), hidden_).y_type =
        to_.wide();
    if (to_.is_device()) {
      gate.gate_factor = spec.gate_factor;
    } else if (spec.gate_factor != 1) {
      to_.Emit(Scale{
          .x = gate_up, .width = own, .stride = spec.inner_width(), .factor = spec.gate_factor});
    }
    RowsIn activated =
        EmitGate(gate, ReaderOf(weights.down), has_norm ? "activated_before_norm" : "activated",
                 Extent::kPart, all, has_norm);
    if (has_norm) {
      const RowsIn normed = to_.Rows("activated", Extent::kPart, all);
      to_.Emit(NormTo{.x = activated.data,
                      .weight = to_.Vector(weights.inner_norm, true),
                      .out = normed.data,
                      .type = down_type,
                      .width = all});
      activated = normed;
    }
    to_.Multiply(weights.down, activated, own_delta_, own_hidden_, all);
  });
  ScaleDelta(own_delta_, spec.output_factor);
}

void DecoderBuilder::EmitRoute(size_t index) {
  const MoeSpec& spec = *share_.layers[index].moe;
  const MoeWeights& weights = weights_.layers[index].moe;
  to_.Emit(Route{.moe = to_.Moe(spec),
                 .router = to_.Linear(weights.router),
                 .x = RouterRows(),
                 .logits = to_.F32("router_logits", Extent::kStep, spec.num_experts),
                 .chosen = Chosen(spec),
                 .weights = ExpertWeightsOf(spec),
                 .choice_bias = to_.Vector(weights.choice_bias, !spec.choice_bias.empty()),
                 .factors = to_.Vector(weights.expert_factors, spec.own_norms.has_value()),
                 .token_experts = to_.Vector(weights.token_experts, !spec.token_experts.empty()),
                 .width = hidden_,
                 .lora = weights.router.lora_layer,
                 .lora_scratch = to_.LoraScratch(Extent::kStep)});
}

BufferId DecoderBuilder::ExpertWeightsOf(const MoeSpec& spec) {
  return to_.F32("expert_weights", Extent::kStep, spec.top_k);
}

void DecoderBuilder::GateShared(size_t index) {
  if (share_.layers[index].mlp.output_gate.empty()) return;
  const LinearWeights& gate = weights_.layers[index].mlp.output_gate;
  to_.Emit(program::GateShared{.gate = to_.Linear(gate),
                               .x = RouterRows(),
                               .gates = SharedGates(),
                               .y = to_.is_device() ? kNone : own_delta_,
                               .width = hidden_,
                               .y_width = own_hidden_,
                               .lora = gate.lora_layer,
                               .lora_scratch = to_.LoraScratch(Extent::kStep)});
}

void DecoderBuilder::LatentExperts(size_t index, bool adds) {
  const int64_t width = share_.layers[index].moe->latent->width;
  const MoeWeights& weights = weights_.layers[index].moe;
  // On the CPU, linear layers of models with experts read F32 (DecoderSpec::SplitsInputs).
  for (const LinearWeights* one : {&weights.latent_down, &weights.latent_up})
    CHECK(to_.is_device() || to_.InputType(one->inputs) == ElementType::kF32);
  RowsIn rows = Normed();
  if (to_.is_device()) {
    // `normed` has the format that the MLP reads.
    rows = to_.Rows("normed_too", Extent::kStep, hidden_);
    EmitNorm(weights_.layers[index].mlp_norms.before,
             !share_.layers[index].mlp_norms.before.empty(), /*adds=*/false, &weights.latent_down,
             rows);
  }
  to_.Multiply(weights.latent_down, rows, ExpertRows(index), width, hidden_);
  const int64_t own = OwnRows(width).size();
  const BufferId sum = to_.F32("latent_sum", Extent::kStep, width);
  const BufferId own_sum = is_shared_ ? to_.F32("own_latent_sum", Extent::kStep, own) : sum;
  Experts(index, /*adds=*/false, own_sum);
  EmitGather(width, ElementType::kF32, own_sum, sum);
  const BufferId delta = adds ? to_.F32("expert_delta", Extent::kStep, own_hidden_) : own_delta_;
  RowsIn results{.data = sum};
  if (to_.is_device()) {
    results = to_.Rows("latent_results", Extent::kStep, width);
    results.narrow = to_.Array("latent_results_f8", Extent::kStep, width);
    to_.Emit(Convert{.x = results.data,
                     .from = sum,
                     .narrow = results.narrow,
                     .scales = results.scales,
                     .reader = ReaderOf(weights.latent_up),
                     .width = width});
  }
  to_.Multiply(weights.latent_up, results, delta, own_hidden_, width);
  if (adds) to_.Emit(Add{.x = own_delta_, .y = delta, .width = own_hidden_});
}

BufferId DecoderBuilder::ExpertRows(size_t index) {
  const MoeSpec& spec = *share_.layers[index].moe;
  return spec.latent ? to_.F32("latent_of_experts", Extent::kStep, spec.latent->width)
                     : RouterRows();
}

void DecoderBuilder::Experts(size_t index, bool adds, BufferId sum) {
  const MoeSpec& spec = *share_.layers[index].moe;
  const int64_t outer = spec.outer_width(hidden_);
  const int64_t own_outer = spec.latent ? OwnRows(outer).size() : own_hidden_;
  const MoeWeights& weights = weights_.layers[index].moe;
  const int64_t own = spec.intermediate_size, all = Whole(index).moe->intermediate_size;
  const MoeId moe = to_.Moe(spec);
  const BufferId order = to_.F32("order", Extent::kPairs, 1);
  const BufferId place = to_.F32("place", Extent::kPairs, 1);
  const BufferId row_begin = to_.F32("row_begin", Extent::kOnce, spec.num_experts + 1);
  // F32 on the CPU; on a device, the type that the products read.
  const RowsIn gathered = to_.Rows("gathered", Extent::kPairs, outer);
  const int64_t inner = spec.inner_width();
  const BufferId gate_up = to_.Wide("expert_gate_up", Extent::kPairs, inner);
  const BufferId results = to_.F32("expert_results", Extent::kPairs, own_outer);
  const ExpertsId gate_up_id = to_.Experts(weights.gate_up), down_id = to_.Experts(weights.down);
  const auto multiply = [&](const ExpertWeights& matrices, const RowsIn& x, BufferId y, int64_t n,
                            int64_t k) -> ProjectExperts& {
    ProjectExperts& product = to_.MultiplyExperts(matrices, x, y, n, k);
    product.moe = moe;
    product.order = order;
    product.row_begin = row_begin;
    if (to_.is_device()) product.chosen = Chosen(spec);
    return product;
  };
  to_.InParts(to_.program().limits.pairs / spec.top_k, spec.top_k, [&] {
    to_.Emit(GroupExperts{.moe = moe,
                          .x = ExpertRows(index),
                          .chosen = Chosen(spec),
                          .weights = ExpertWeightsOf(spec),
                          .order = order,
                          .place = place,
                          .row_begin = row_begin,
                          .out = gathered.data,
                          .width = outer,
                          .reader = {.experts = gate_up_id},
                          .scales = gathered.scales});
    multiply(weights.gate_up, gathered, gate_up, inner, outer).y_type = to_.wide();
    GateMul gate = GateOf(spec);
    gate.x = gate_up;
    gate.type = to_.is_device() ? ElementType::kBF16 : ElementType::kF32;
    gate.width = own;
    gate.clamp = spec.clamp;
    CombineExperts combine{.moe = moe,
                           .x = results,
                           .place = place,
                           .weights = ExpertWeightsOf(spec),
                           .sum = sum,
                           .adds = adds,
                           .width = own_outer};
    if (to_.is_device()) {
      gate.biased = gate_up_id;
      gate.order = order;
      gate.chosen = combine.chosen = Chosen(spec);
      gate.moe = moe;
      combine.biased = down_id;
      if (!share_.layers[index].mlp.output_gate.empty()) combine.gates = SharedGates();
    }
    const RowsIn activated =
        EmitGate(gate, {.experts = down_id}, "expert_activated", Extent::kPairs, all);
    multiply(weights.down, activated, results, own_outer, all);
    to_.Emit(combine);
  });
}

void DecoderBuilder::MoeWithOwnNorms(size_t index) {
  const MoeWeights& weights = weights_.layers[index].moe;
  DenseMlp(index);
  GatherDelta();
  NormDelta(weights.mlp_after, true);
  const auto norm = [&](const std::vector<float>& weight) {
    Norm& emitted = EmitNorm(weight, true, /*adds=*/false, nullptr, Normed());
    if (to_.is_device()) emitted.out_f32 = RouterRows();
  };
  norm(weights.router_norm);
  EmitRoute(index);
  norm(weights.experts_before);
  const BufferId sum = to_.F32("expert_delta", Extent::kStep, hidden_);
  const BufferId own = is_shared_ ? own_delta_ : sum;
  Experts(index, /*adds=*/false, own);
  EmitGather(hidden_, ElementType::kF32, own, sum);
  to_.Emit(NormRows{.x = sum, .weight = to_.Vector(weights.experts_after, true), .width = hidden_});
  if (!to_.is_device()) {
    to_.Emit(Add{.x = delta_, .y = sum, .width = hidden_});
    return;
  }
  const bool has_after = !share_.layers[index].mlp_norms.after.empty();
  to_.Emit(NormRows{.x = delta_,
                    .y = sum,
                    .weight = to_.Vector(weights_.layers[index].mlp_norms.after, has_after),
                    .width = hidden_});
}

}  // namespace sluice::program
