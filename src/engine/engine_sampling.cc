// Samples the tokens of a step. Sequences whose constraints are not ready wait.
#include <memory>
#include <span>

#include "engine/engine_core.h"

namespace sluice {

void EngineCore::SampleFirst(Flight& flight, StepStats& stats) {
  sampling_.clear();
  for (FlyingSlice& slice : flight.slices) {
    ActiveSequence& sequence = slice.active();
    if (!slice.samples || !slice.is_wanted || sequence.request->ended) continue;
    sequence.num_drawn -= slice.is_awaited ? 1 : 0;
    SampleJob& job = jobs_[sampling_.size()];
    job.is_drawn = false;
    job.sequence = &sequence.sampling;
    if (!flight.draws.empty()) {
      const TokenDraw& draw = flight.draws[static_cast<size_t>(slice.first_logit)];
      if (draw.is_wanted) SetDrawn(job, draw.token, draw.error, draw.logprobs, draw.top);
    }
    const int64_t logits = slice.first_logit + (slice.all_rows ? slice.num_tokens - 1 : 0);
    sampling_.push_back({&sequence, &slice, logits, slice.num_proposed});
    stats.drafts += slice.num_proposed > 0 ? 1 : 0;
    stats.draft_tokens += slice.num_proposed;
  }
  SampleRound(flight, 0);
  for (size_t i = 0; i < sampling_.size(); ++i) sampling_[i].slice->is_late = jobs_[i].is_late;
}

void EngineCore::SampleRound(const Flight& flight, int64_t round) {
  for (size_t i = 0; i < sampling_.size(); ++i) {
    const ActiveSequence& sequence = *sampling_[i].sequence;
    SampleJob& job = jobs_[i];
    job.logits = LogitsOf(flight, sampling_[i].logits + round);
    job.maxima = MaximaOf(flight, sampling_[i].logits + round);
    job.sequence = &sampling_[i].sequence->sampling;
    job.history = {sequence.tokens, sequence.num_prompt_tokens};
    if (round > 0) job.is_drawn = false;
  }
  sampler_.Sample(pool_, std::span(jobs_).first(sampling_.size()));
  for (Sampling& sampling : sampling_) {
    const auto& matcher = sampling.sequence->sampling.matcher;
    sampling.is_slow = matcher != nullptr && matcher->is_slow();
  }
  if (journal_ != nullptr && !sampling_.empty()) JournalRound();
}

void EngineCore::LearnProposed(ActiveSequence& sequence, int64_t num_proposed,
                               int64_t num_accepted) {
  const auto proposed = static_cast<int>(num_proposed), accepted = static_cast<int>(num_accepted);
  if (drafter_ != nullptr)
    drafter_->Learn(proposed, accepted, sequence.draft);
  else
    Proposer::Learn(proposed, accepted, sequence.proposals);
}

void EngineCore::Sample(const Flight& flight, StepStats& stats) {
  // A sequence can sample several tokens in this step, one per round.
  for (int64_t round = 0; !sampling_.empty(); ++round) {
    if (round > 0) SampleRound(flight, round);
    const Clock::time_point now = Clock::now();
    size_t num_verified = 0;
    for (size_t i = 0; i < sampling_.size(); ++i) {
      Sampling sampling = sampling_[i];
      ActiveSequence& sequence = *sampling.sequence;
      if (jobs_[i].is_late) {
        LearnProposed(sequence, sampling.num_proposed, round);
        if (!sequence.finish) Hold(sequence);
        continue;
      }
      // The draft token of the previous round matched. Its keys and values count as computed only
      // when the row after it is sampled; until then, the token may be computed again.
      if (round > 0 && !sequence.finish) scheduler_.AcceptProposed(sequence);
      const int32_t token = jobs_[i].token;
      const bool appended = AppendToken(sequence, jobs_[i], now, sampling.update);
      stats.generated_tokens += appended ? 1 : 0;
      const bool is_proposed = appended && round < sampling.num_proposed &&
                               token == sequence.proposed[static_cast<size_t>(round)];
      if (is_proposed) ++stats.accepted_tokens[static_cast<size_t>(round)];
      const bool is_slow = sampling.is_slow;
      if (is_proposed && !sequence.finish && !is_slow) {
        sampling_[num_verified++] = sampling;
        continue;
      }
      LearnProposed(sequence, sampling.num_proposed, round + (is_proposed ? 1 : 0));
      if (sequence.finish) continue;
      if (is_slow) Hold(sequence);
      ChargeMatcher(sequence);
    }
    sampling_.resize(num_verified);
  }
}

void EngineCore::Hold(ActiveSequence& sequence) {
  const std::shared_ptr<SequenceMatcher>& matcher = sequence.sampling.matcher;
  sequence.is_held = true;
  if (replays()) return;
  if (matcher->is_away()) return;  // already in the queue, because the sequence was preempted
  const std::span<const int32_t> tokens = sequence.tokens;
  matchers_.Submit(matcher, tokens.subspan(static_cast<size_t>(sequence.num_prompt_tokens)),
                   sequence.client);
}

bool EngineCore::ReleaseHeld() {
  bool any_held = false;
  for (ScheduledSequence* scheduled : scheduler_.running()) {
    auto& sequence = static_cast<ActiveSequence&>(*scheduled);
    if (!sequence.is_held) continue;
    any_held = true;
    if (replays()) continue;
    sequence.is_held = sequence.sampling.matcher->is_away();
    if (!sequence.is_held) ChargeMatcher(sequence);
  }
  return any_held;
}

void EngineCore::LearnSecondsPerToken(double seconds) {
  constexpr double kWeight = 0.1;  // weight of a step in the moving average
  seconds_per_token_ += (seconds_per_token_ > 0 ? kWeight : 1) * (seconds - seconds_per_token_);
}

void EngineCore::ChargeMatcher(ActiveSequence& sequence) const {
  if (sequence.sampling.matcher == nullptr || seconds_per_token_ <= 0) return;
  if (sequence.sampling.matcher->is_away()) return;
  sequence.owed_tokens +=
      static_cast<int64_t>(sequence.sampling.matcher->TakeUncharged() / seconds_per_token_);
}

}  // namespace sluice
