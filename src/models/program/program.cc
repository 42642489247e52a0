#include "models/program/program.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::program {

int64_t Limits::Of(Extent extent) const {
  switch (extent) {
    case Extent::kOnce: return 1;
    case Extent::kStep: return rows;
    case Extent::kWanted: return wanted;
    case Extent::kPart: return part;
    case Extent::kRounded: return rounded;
    case Extent::kPairs: return pairs;
  }
  CHECK(false);
}

const char* NameOf(const Op& op) {
  return std::visit([](const auto& one) { return one.kName; }, op);
}

int64_t WidestInput(const Program& program) {
  int64_t widest = 0;
  for (const Op& op : program.ops) {
    if (const auto* product = std::get_if<Project>(&op)) widest = std::max(widest, product->k);
    if (const auto* product = std::get_if<ProjectExperts>(&op))
      widest = std::max(widest, product->k);
    if (const auto* product = std::get_if<ProjectGroups>(&op))
      widest = std::max(widest, product->k);
    if (const auto* router = std::get_if<Route>(&op)) widest = std::max(widest, router->width);
    if (const auto* gate = std::get_if<GateShared>(&op)) widest = std::max(widest, gate->width);
    if (const auto* latent = std::get_if<AbsorbQueries>(&op)) {
      const LatentSpec& spec = *program.attentions[static_cast<size_t>(latent->attention)].latent;
      widest = std::max({widest, int64_t{spec.qk_dim()}, int64_t{spec.kv_rank}});
    }
  }
  return widest;
}

bool OrdersInputs(const Program& program) {
  const auto has_order = [](const kernels::PackedMatrix& matrix) {
    return matrix.format.has_input_order;
  };
  return std::ranges::any_of(program.linears,
                             [&](const LinearWeights* one) { return has_order(one->matrix); }) ||
         std::ranges::any_of(program.experts, [&](const ExpertWeights* one) {
           return std::ranges::any_of(one->matrices, has_order);
         });
}

BufferId FindBuffer(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.buffers, name, &Buffer::name);
  CHECK(found != program.buffers.end(), "no buffer {}", name);
  return static_cast<BufferId>(found - program.buffers.begin());
}

}  // namespace sluice::program
