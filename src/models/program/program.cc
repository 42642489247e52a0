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
