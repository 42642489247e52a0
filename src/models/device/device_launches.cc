#include "models/device/device_launches.h"

#include <variant>

#include "base/integer.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice {
namespace {

using program::kNone;

// Counts the launches of one operator, as DeviceWalk enqueues them. Operators without a function
// here launch one kernel or copy.
struct Counter {
  const DeviceProgramWeights& weights;
  int64_t rows;
  int64_t max_context;

  static constexpr int64_t kOfProduct = 2;
  static constexpr int64_t kOfExchange = 2;  // the exchange, and a copy of its results

  template <typename Other>
  int64_t operator()(const Other&) const {
    return 1;
  }
  int64_t operator()(const program::SkipUnless&) const { return 0; }
  int64_t operator()(const program::Parts&) const { return 0; }
  // All rows have results.
  int64_t operator()(const program::KeepRows&) const { return 0; }
  int64_t operator()(const program::PlaceImages&) const { return 0; }
  int64_t operator()(const program::AddImages&) const { return 0; }
  int64_t operator()(const program::Embed& op) const {
    return op.own == kNone ? 1 : 1 + kOfExchange;
  }
  int64_t operator()(const program::Gather&) const {
    constexpr int64_t kRounding = 1;
    return kOfExchange + kRounding;
  }
  int64_t operator()(const program::Project& op) const {
    const bool is_ordered = op.linear != kNone &&
                            weights.linears[static_cast<size_t>(op.linear)].input_order != nullptr;
    return kOfProduct + (is_ordered ? 1 : 0);
  }
  int64_t operator()(const program::ProjectExperts&) const { return kOfProduct; }
  int64_t operator()(const program::RopeAppend& op) const {
    if (op.q_squares == kNone) return 1;
    return 2 + (op.own_q_squares == kNone ? 0 : 2 * kOfExchange);
  }
  // Wide tiles, narrow tiles, and the sum of the parts of narrow ones.
  int64_t operator()(const program::Attend&) const { return 3; }
  int64_t operator()(const program::ChoosePositions&) const {
    return 1 + 2 * CeilDiv(rows, device::SelectRowsAtOnce(max_context));
  }
  // The products, and the elements after the last whole tile.
  int64_t operator()(const program::AbsorbQueries&) const { return 2; }
  int64_t operator()(const program::ExpandValues&) const { return 2; }
  int64_t operator()(const program::Convolve&) const { return 2; }
  int64_t operator()(const program::Route&) const { return 2; }
  int64_t operator()(const program::GroupExperts&) const { return 2; }
  int64_t operator()(const program::TakeHidden& op) const {
    const int64_t parts = op.width / op.part_width;
    return parts + 2;
  }
  int64_t operator()(const program::JoinNorms&) const { return 3; }
};

}  // namespace

int64_t LaunchesOf(const program::Program& program, const DeviceProgramWeights& weights,
                   int64_t rows, int64_t max_context) {
  const Counter counter{weights, rows, max_context};
  int64_t sum = 0;
  int64_t in_parts = 0, times = 1;  // operators that still belong to the current Parts
  for (const program::Op& op : program.ops) {
    sum += std::visit(counter, op) * (in_parts > 0 ? times : 1);
    if (in_parts > 0) --in_parts;
    if (const auto* const parts = std::get_if<program::Parts>(&op)) {
      in_parts = parts->count;
      times = CeilDiv(rows, parts->rows);
    }
  }
  return sum;
}

}  // namespace sluice
