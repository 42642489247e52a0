// The core's operations on its prefix cache outside of steps.
#include "engine/engine_core.h"

namespace sluice {

bool EngineCore::ResetPrefixCache(bool keeps_disk) {
  if (journal_ != nullptr) journal_->OnResetCache();
  if (drafter_ != nullptr) drafter_->ResetPrefixCache();
  return index_ == nullptr || index_->Reset(keeps_disk);
}

void EngineCore::UseTiers(BlockTiers* tiers, BlockTiers* snapshots) {
  if (index_ == nullptr) return;
  tiers_ = tiers;
  snapshot_tiers_ = snapshots;
  index_->UseTiers(tiers, snapshots);
  if (tiers != nullptr) tiers->set_listener(dynamic_cast<TierListener*>(listener_));
}

void EngineCore::SaveCache(double max_seconds) {
  if (tiers_ != nullptr && !has_work() && blocks_.num_held() == 0) index_->SaveToDisk(max_seconds);
}

void EngineCore::TellCacheEvents() {
  if (listener_ == nullptr || index_ == nullptr) return;
  if (listener_->wants_everything()) index_->Tell(*listener_);
  if (tiers_ != nullptr) tiers_->TellChanges();
  listener_->EndBatch();
}

}  // namespace sluice
