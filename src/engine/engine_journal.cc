// Reports the core's events to its journal.
#include "engine/engine_core.h"

namespace sluice {

void EngineCore::UseJournal(EngineJournal* journal) {
  journal_ = journal;
  if (journal_ == nullptr) return;
  sampled_.reserve(jobs_.size());
  journal_->OnStart(plan_);
}

int64_t EngineCore::MicrosecondsAt(Clock::time_point now) const {
  using std::chrono::duration_cast, std::chrono::microseconds;
  return duration_cast<microseconds>(now - started_).count();
}

void EngineCore::JournalRound() {
  sampled_.clear();
  for (size_t i = 0; i < sampling_.size(); ++i) {
    sampled_.push_back({.sequence = sampling_[i].sequence,
                        .token = jobs_[i].token,
                        .is_late = jobs_[i].is_late,
                        .is_slow = sampling_[i].is_slow,
                        .has_failed = !jobs_[i].error.empty()});
  }
  journal_->OnSampled(sampled_);
  if (!journal_->replays()) return;
  for (size_t i = 0; i < sampling_.size(); ++i) {
    jobs_[i].token = sampled_[i].token;
    jobs_[i].is_late = sampled_[i].is_late;
    sampling_[i].is_slow = sampled_[i].is_slow;
    if (sampled_[i].has_failed && jobs_[i].error.empty())
      jobs_[i].error = "the recorded request failed here";
    if (!sampled_[i].has_failed) jobs_[i].error = {};
  }
}

}  // namespace sluice
