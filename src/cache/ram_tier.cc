#include "cache/ram_tier.h"

#include "base/check.h"

namespace sluice {

bool RamTier::Touch(const TierName& name) {
  const auto found = places_.find(name);
  if (found == places_.end()) return false;
  kept_.splice(kept_.end(), kept_, found->second);
  return true;
}

HeldBytes RamTier::Take(const TierName& name) {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  HeldBytes bytes = std::move(found->second->bytes);
  kept_.erase(found->second);
  places_.erase(found);
  return bytes;
}

void RamTier::Add(Kept kept) {
  CHECK_LT(size(), max_blocks_);
  kept_.push_back(std::move(kept));
  const bool is_new = places_.emplace(kept_.back().name, std::prev(kept_.end())).second;
  CHECK(is_new);
}

std::optional<RamTier::Kept> RamTier::TakeOldest() {
  return TakeAt(kept_.begin());
}

std::optional<RamTier::Kept> RamTier::TakeNewest() {
  return TakeAt(kept_.empty() ? kept_.end() : std::prev(kept_.end()));
}

std::optional<RamTier::Kept> RamTier::TakeAt(List::iterator place) {
  if (place == kept_.end()) return std::nullopt;
  Kept kept = std::move(*place);
  places_.erase(kept.name);
  kept_.erase(place);
  return kept;
}

void RamTier::Clear() {
  places_.clear();
  kept_.clear();
}

}  // namespace sluice
