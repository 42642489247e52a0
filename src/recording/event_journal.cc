#include "recording/event_journal.h"

#include <chrono>

#include "engine/adapters.h"
#include "recording/plan_facts.h"

namespace sluice::recording {

uint64_t SaltNumbers::Of(const std::string& salt) {
  if (salt.empty()) return 0;
  if (numbers_.size() >= kMost) numbers_.clear();
  const auto [place, is_new] = numbers_.try_emplace(salt, next_);
  if (is_new) ++next_;
  return place->second;
}

SequenceName NameOf(const ScheduledSequence& sequence) {
  const auto& active = static_cast<const ActiveSequence&>(sequence);
  return {active.request->handle, active.index};
}

AddEvent MakeAddEvent(int64_t time_us, const ActiveRequest& active, SaltNumbers& salts) {
  using std::chrono::duration_cast, std::chrono::microseconds;
  const Request& request = active.request;
  const ActiveSequence& first = *active.sequences.front();
  AddEvent event;
  event.handle = active.handle;
  event.time_us = time_us;
  event.arrival_us = time_us - duration_cast<microseconds>(Clock::now() - request.arrival).count();
  event.id = request.id;
  event.seed = first.sampling.seed;
  event.siblings_wait = active.sequences.size() > 1 && active.sequences[1]->leader != nullptr;
  event.num_sequences = request.num_sequences;
  event.priority = request.priority;
  event.client = request.client;
  event.salt = salts.Of(first.cache_salt);
  if (request.adapter != nullptr) event.adapter = request.adapter->name();
  event.use_prefix_cache = request.use_prefix_cache;
  event.is_constrained = request.constraint != nullptr;
  event.num_images = static_cast<int32_t>(request.images.size());
  event.has_rows = request.rows != nullptr;
  event.second_text = request.second_text;
  event.num_prompt_tokens = std::ssize(request.prompt);
  event.prompt = request.prompt;
  event.sampling = request.sampling;
  event.end_tokens = request.end_tokens;
  return event;
}

void SetDecisions(const StepPlan& plan, PlanEvent& event) {
  event.slices.clear();
  event.preempted.clear();
  for (const PlannedSlice& slice : plan.slices) {
    event.slices.push_back({.sequence = NameOf(*slice.sequence),
                            .first = slice.first,
                            .num_tokens = slice.num_tokens,
                            .num_proposed = slice.num_proposed,
                            .samples = slice.samples});
  }
  for (const ScheduledSequence* preempted : plan.preempted)
    event.preempted.push_back(NameOf(*preempted));
  event.prefix_queries = plan.prefix_queries;
  event.prefix_hits = plan.prefix_hits;
}

void RecordingJournal::OnStart(const EnginePlan& plan) {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  const auto now = system_clock::now().time_since_epoch();
  Put(StartEvent{duration_cast<microseconds>(now).count(), PlanFacts(plan)});
}

void RecordingJournal::OnAdd(int64_t& time_us, const ActiveRequest& request) {
  Put(MakeAddEvent(time_us, request, salts_));
}

void RecordingJournal::OnPlanning(int64_t& time_us, std::span<ScheduledSequence* const> running) {
  plan_.time_us = time_us;
  plan_.proposed.clear();
  plan_.held.clear();
  plan_.owed.clear();
  for (const ScheduledSequence* sequence : running) {
    if (!sequence->proposed.empty())
      plan_.proposed.emplace_back(NameOf(*sequence), sequence->proposed);
    if (sequence->is_held) plan_.held.push_back(NameOf(*sequence));
    if (sequence->owed_tokens != 0)
      plan_.owed.emplace_back(NameOf(*sequence), sequence->owed_tokens);
  }
}

void RecordingJournal::OnPlan(const StepPlan& plan) {
  SetDecisions(plan, plan_);
  Put(plan_);
}

void RecordingJournal::OnSampled(std::span<SampledRow> rows) {
  sampled_.rows.clear();
  for (const SampledRow& row : rows) {
    RowRecord record{.sequence = NameOf(*row.sequence)};
    if (row.is_late) record.flags |= RowRecord::kLate;
    if (row.is_slow) record.flags |= RowRecord::kSlow;
    if (row.has_failed) record.flags |= RowRecord::kFailed;
    if (record.has_token()) record.token = row.token;
    sampled_.rows.push_back(record);
  }
  Put(sampled_);
}

void RecordingJournal::OnStepFailed(std::string_view reason) {
  Put(StepFailedEvent{std::string(reason)});
}

}  // namespace sluice::recording
