#include "server/door/placement.h"

#include <algorithm>
#include <tuple>

namespace sluice {
namespace {

// Returns the models of `candidates`, in their order, that must be unloaded to free `missing`
// bytes. Empty if even all candidates are not enough.
std::vector<int> Enough(const std::vector<const PlacedModel*>& candidates, int64_t missing) {
  std::vector<const PlacedModel*> taken;
  int64_t bytes = 0;
  for (const PlacedModel* candidate : candidates) {
    if (bytes >= missing) break;
    taken.push_back(candidate);
    bytes += candidate->bytes;
  }
  if (bytes < missing) return {};
  // Leaves out models that turn out to be unnecessary, the most recently used first.
  for (size_t i = taken.size(); i-- > 0;) {
    if (bytes - taken[i]->bytes < missing) continue;
    bytes -= taken[i]->bytes;
    taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::vector<int> models;
  for (const PlacedModel* model : taken) models.push_back(model->model);
  return models;
}

}  // namespace

int64_t PinnedBytes(const std::vector<PlacedModel>& placed, int model) {
  int64_t bytes = 0;
  for (const PlacedModel& other : placed) {
    if (other.is_pinned && other.model != model) bytes += other.bytes;
  }
  return bytes;
}

Placement Place(int64_t budget_bytes, const std::vector<PlacedModel>& placed,
                const WantedModel& wanted) {
  if (wanted.bytes + PinnedBytes(placed, wanted.model) > budget_bytes)
    return {.answer = Placement::Answer::kNever, .put_out = {}, .close = {}};
  int64_t missing = wanted.bytes - budget_bytes;
  std::vector<const PlacedModel*> idle, busy;
  for (const PlacedModel& other : placed) {
    if (other.model == wanted.model) continue;
    missing += other.bytes;
    if (other.is_pinned || !other.is_settled) continue;
    if (!other.is_busy) {
      idle.push_back(&other);
    } else if (other.had_a_turn && other.priority <= wanted.priority) {
      busy.push_back(&other);
    }
  }
  if (missing <= 0) return {};
  const auto leaves_first = [](const PlacedModel* a, const PlacedModel* b) {
    return std::tie(a->priority, a->last_used, a->model) <
           std::tie(b->priority, b->last_used, b->model);
  };
  std::sort(idle.begin(), idle.end(), leaves_first);
  std::sort(busy.begin(), busy.end(), leaves_first);
  std::vector<int> leaving = Enough(idle, missing);
  if (!leaving.empty())
    return {.answer = Placement::Answer::kNow, .put_out = std::move(leaving), .close = {}};
  int64_t idle_bytes = 0;
  for (const PlacedModel* model : idle) idle_bytes += model->bytes;
  return {.answer = Placement::Answer::kLater,
          .put_out = {},
          .close = Enough(busy, missing - idle_bytes)};
}

}  // namespace sluice
