#include "recording/replay.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/engine_core.h"
#include "recording/event_journal.h"
#include "recording/plan_facts.h"

namespace sluice::recording {
namespace {

// Maximum number of steps after the recorded ones, in which the remaining requests end.
constexpr int64_t kMostFurtherSteps = int64_t{1} << 20;
constexpr int64_t kMostOwedTokens = int64_t{1} << 40;

// Discards all results, because the journal compares them.
class NoSink final : public RequestSink {
 public:
  void OnPrompt(PromptResult /*result*/) override {}
  void OnUpdate(SequenceUpdate /*update*/) override {}
  void OnError(Error /*error*/) override {}
};

bool IsInsideStep(EventKind kind) {
  return kind == EventKind::kPlan || kind == EventKind::kSampled || kind == EventKind::kStepFailed;
}

std::string SliceText(const SliceRecord& slice) {
  return fmt::format("{} tokens from {}{}{}", slice.num_tokens, slice.first,
                     slice.num_proposed > 0 ? fmt::format(", {} of them drafts", slice.num_proposed)
                                            : std::string(),
                     slice.samples ? ", sampling" : "");
}

// Returns why a replay cannot compute the request; "" if it can.
std::string_view WhyNot(const AddEvent& event) {
  if (event.num_images > 0) return "its images are not in the recording";
  if (event.has_rows) return "its prompt embeddings are not in the recording";
  if (event.prompt.empty()) return "the recording has only hashes of its prompt";
  return "";
}

}  // namespace

std::string Difference::Text() const {
  std::string place;
  if (handle != 0) {
    place =
        fmt::format("request {}, sequence {}", id.empty() ? std::to_string(handle) : id, sequence);
    if (kind == Kind::kToken) place += fmt::format(", token {}", position);
  } else {
    place = kind == Kind::kRecording ? "the recording" : "the engine";
  }
  return fmt::format("{}: expected {}, found {} (step {})", place, expected, found, step);
}

ReplayJournal::ReplayJournal(std::vector<RecordedEvent> events, ReplayOptions options)
    : events_(std::move(events)), options_(std::move(options)) {}

void ReplayJournal::Replay(const ReplaySeat& seat) {
  result_ = {};
  next_ = 0;
  ended_ = false;
  core_ = nullptr;
  vocab_size_ = seat.vocab_size;
  ids_.clear();
  unchecked_.clear();
  answers_.clear();
  ReadAnswers();
  Run(seat);
  for (const auto& [key, answer] : answers_) {
    result_.num_answers += answer.is_compared;
    result_.num_different_answers += answer.is_different;
    result_.num_unchecked_answers += !answer.is_compared && unchecked_.contains(key.first);
  }
}

void ReplayJournal::ReadAnswers() {
  // `cut`: requests that were running when events were lost. Only their tokens before the loss are
  // known.
  std::set<uint64_t> added, cut;
  for (const RecordedEvent& event : events_) {
    if (event.kind == EventKind::kAdd) {
      if (const auto add = ReadEvent<AddEvent>(event.fields)) added.insert(add->handle);
    } else if (event.kind == EventKind::kGap) {
      cut.merge(added);
    } else if (event.kind == EventKind::kSampled) {
      const auto sampled = ReadEvent<SampledEvent>(event.fields);
      if (!sampled) continue;
      for (const RowRecord& row : sampled->rows) {
        const SequenceName& name = row.sequence;
        if (row.has_token() && !cut.contains(name.handle))
          answers_[{name.handle, name.index}].tokens.push_back(row.token);
      }
    }
  }
}

void ReplayJournal::Run(const ReplaySeat& seat) {
  while (!ended_ && next_ < events_.size()) {
    if (!Apply(seat)) return;
  }
  if (ended_ || options_.follows_steps || core_ == nullptr) return;
  // Runs the steps after the recorded ones: the recording may have ended while requests were
  // running, or requests may take more steps when replayed alone.
  for (int64_t i = 0; core_->has_work() && !ended_ && i < kMostFurtherSteps; ++i) {
    ++result_.num_steps;
    core_->Step();
  }
}

bool ReplayJournal::StartCore(const ReplaySeat& seat) {
  last_time_us_ = 0;
  auto core = seat.fresh_core();
  if (!core) {
    Stop(core.error().message);
    return false;
  }
  core_ = *core;
  return !ended_;
}

bool ReplayJournal::Apply(const ReplaySeat& seat) {
  const RecordedEvent& event = events_[next_];
  if (event.kind != EventKind::kStart && core_ == nullptr) {
    if (options_.follows_steps) {
      Stop("its beginning is missing, because it was rotated out; only answers can be compared");
      return false;
    }
    if (!StartCore(seat)) return false;
  }
  switch (event.kind) {
    case EventKind::kStart: {
      const bool is_started = StartCore(seat);
      ++next_;
      return is_started;
    }
    case EventKind::kAdd: {
      const auto add = Take<AddEvent>();
      return add && Add(seat, *add);
    }
    case EventKind::kAbort: {
      const auto abort = Take<AbortEvent>();
      if (abort) core_->Abort(abort->handle);
      return abort.has_value();
    }
    case EventKind::kStop: {
      const auto stop = Take<StopEvent>();
      if (stop) core_->StopSequence(stop->sequence.handle, stop->sequence.index);
      return stop.has_value();
    }
    case EventKind::kAbortAll:
      ++next_;
      core_->AbortAll();
      return true;
    case EventKind::kResetCache:
      ++next_;
      core_->ResetPrefixCache();
      return true;
    case EventKind::kStep: ++next_; return Step();
    case EventKind::kBreak: {
      if (next_ + 1 == events_.size()) {  // the recording ends here: the server stopped
        ++next_;
        return true;
      }
      const auto what = Take<BreakEvent>();
      Stop(what ? what->what : "it is damaged");
      return false;
    }
    case EventKind::kGap: {
      if (!options_.follows_steps) {
        ++next_;
        return true;
      }
      const auto gap = Take<GapEvent>();
      Stop(fmt::format("{} events were dropped here", gap ? gap->num_dropped : 0));
      return false;
    }
    case EventKind::kArrival:
    case EventKind::kFacts:
    // This plan event ends the step that was in flight when all requests were aborted.
    case EventKind::kPlan:
    case EventKind::kSampled:
    case EventKind::kStepFailed: ++next_; return true;
  }
  Stop(fmt::format("it has an event of the unknown kind {}", static_cast<int>(event.kind)));
  return false;
}

template <typename Event>
std::optional<Event> ReplayJournal::Take() {
  if (next_ < events_.size() && events_[next_].kind == Event::kKind) {
    if (auto event = ReadEvent<Event>(events_[next_].fields)) {
      ++next_;
      return event;
    }
    Stop("an event is damaged");
    return std::nullopt;
  }
  const bool is_lost = next_ < events_.size() && (events_[next_].kind == EventKind::kGap ||
                                                  events_[next_].kind == EventKind::kBreak);
  if (is_lost) Stop("events were dropped here");
  // A recording of a killed server may end in the middle of a step.
  ended_ = ended_ || next_ == events_.size();
  if (ended_) return std::nullopt;
  Differ({.kind = Difference::Kind::kPlan,
          .expected = std::string(EventName(events_[next_].kind)),
          .found = std::string(EventName(Event::kKind))});
  ended_ = true;
  return std::nullopt;
}

bool ReplayJournal::Add(const ReplaySeat& seat, const AddEvent& event) {
  if (!options_.only.empty() && !options_.only.contains(event.handle)) return true;
  if (const std::string_view why = WhyNot(event); !why.empty()) {
    if (!options_.follows_steps) return true;
    Stop(fmt::format("request {}: {}", event.id, why));
    return false;
  }
  Request request;
  request.id = event.id;
  request.prompt = event.prompt;
  request.second_text = event.second_text;
  request.sampling = event.sampling;
  request.end_tokens = event.end_tokens;
  request.num_sequences = event.num_sequences;
  request.priority = event.priority;
  request.client = event.client;
  if (event.salt != 0) request.cache_salt = std::to_string(event.salt);
  request.use_prefix_cache = event.use_prefix_cache;
  request.sink = std::make_shared<NoSink>();
  auto made = seat.make_request(event.handle, std::move(request), event.seed, event.siblings_wait);
  if (!made) {
    Stop(fmt::format("request {}: {}", event.id, made.error().message));
    return false;
  }
  if (!ids_.emplace(event.handle, event.id).second) {
    Stop(fmt::format("two requests have the number {}", event.handle));
    return false;
  }
  if (event.is_constrained || !event.adapter.empty()) unchecked_.insert(event.handle);
  last_time_us_ = std::max(last_time_us_, event.time_us);
  ++result_.num_requests;
  core_->Add(*std::move(made));
  return !ended_;
}

bool ReplayJournal::Step() {
  if (options_.until && result_.num_steps >= *options_.until) {
    ended_ = true;
    return false;
  }
  ++result_.num_steps;
  if (core_->has_work()) {
    core_->Step();
  } else if (options_.follows_steps) {
    Differ({.kind = Difference::Kind::kPlan, .expected = "a step", .found = "no requests"});
    ended_ = true;
  }
  if (options_.follows_steps && !ended_ && next_ < events_.size() &&
      IsInsideStep(events_[next_].kind)) {
    Differ({.kind = Difference::Kind::kPlan,
            .expected = std::string(EventName(events_[next_].kind)),
            .found = "the end of the step"});
    ended_ = true;
  }
  while (!ended_ && next_ < events_.size() && IsInsideStep(events_[next_].kind)) ++next_;
  return !ended_;
}

void ReplayJournal::OnStart(const EnginePlan& plan) {
  if (next_ >= events_.size() || events_[next_].kind != EventKind::kStart) return;
  const auto start = ReadEvent<StartEvent>(events_[next_].fields);
  if (!start) return Stop("an event is damaged");
  if (!options_.follows_steps) return;
  const std::string difference = DifferenceOfFacts(start->plan, PlanFacts(plan));
  if (difference.empty()) return;
  Stop(
      fmt::format("its steps belong to another plan ({}); use the recorded options, or compare "
                  "only answers",
                  difference));
}

void ReplayJournal::OnAdd(int64_t& time_us, const ActiveRequest& /*request*/) {
  time_us = last_time_us_;
}

void ReplayJournal::OnPlanning(int64_t& time_us, std::span<ScheduledSequence* const> running) {
  has_planning_ = false;
  if (!ended_ && options_.follows_steps) {
    if (auto plan = Take<PlanEvent>()) {
      planning_ = *std::move(plan);
      has_planning_ = true;
    }
  } else if (next_ < events_.size() && events_[next_].kind == EventKind::kPlan) {
    if (const auto plan = ReadEvent<PlanEvent>(events_[next_].fields))
      last_time_us_ = std::max(last_time_us_, plan->time_us);
    ++next_;
  }
  if (has_planning_) last_time_us_ = std::max(last_time_us_, planning_.time_us);
  time_us = last_time_us_;
  for (ScheduledSequence* sequence : running) {
    sequence->proposed.clear();
    sequence->is_held = false;
    sequence->owed_tokens = 0;
  }
  if (!has_planning_) return;
  const auto find = [&](const SequenceName& name) -> ScheduledSequence* {
    const auto found =
        std::ranges::find_if(running, [&](const auto* one) { return NameOf(*one) == name; });
    return found == running.end() ? nullptr : *found;
  };
  for (auto& [name, tokens] : planning_.proposed) {
    ScheduledSequence* const sequence = find(name);
    const bool fits =
        sequence != nullptr &&
        std::ssize(sequence->tokens) + std::ssize(tokens) < sequence->max_total_tokens &&
        std::ranges::all_of(tokens,
                            [&](int32_t token) { return token >= 0 && token < vocab_size_; });
    if (fits) sequence->proposed = std::move(tokens);
  }
  for (const SequenceName& name : planning_.held) {
    if (ScheduledSequence* const sequence = find(name)) sequence->is_held = true;
  }
  for (const auto& [name, tokens] : planning_.owed) {
    if (ScheduledSequence* const sequence = find(name))
      sequence->owed_tokens = std::clamp<int64_t>(tokens, 0, kMostOwedTokens);
  }
}

void ReplayJournal::OnPlan(const StepPlan& plan) {
  SetDecisions(plan, found_);
  result_.num_preemptions += std::ssize(found_.preempted);
  result_.prefix_hits += found_.prefix_hits;
  result_.last_plan = found_;
  if (!has_planning_) return;
  const auto differ = [&](const SequenceName& name, std::string expected, std::string found) {
    Differ({.kind = Difference::Kind::kPlan,
            .handle = name.handle,
            .id = IdOf(name.handle),
            .sequence = name.index,
            .expected = std::move(expected),
            .found = std::move(found)});
    ended_ = true;
  };
  const size_t most = std::max(planning_.preempted.size(), found_.preempted.size());
  for (size_t i = 0; i < most; ++i) {
    const bool is_expected = i < planning_.preempted.size(), is_found = i < found_.preempted.size();
    if (is_expected && is_found && planning_.preempted[i] == found_.preempted[i]) continue;
    return differ(is_found ? found_.preempted[i] : planning_.preempted[i],
                  is_found ? "no preemption" : "a preemption", is_found ? "a preemption" : "none");
  }
  const size_t slices = std::max(planning_.slices.size(), found_.slices.size());
  for (size_t i = 0; i < slices; ++i) {
    const SliceRecord* const expected =
        i < planning_.slices.size() ? &planning_.slices[i] : nullptr;
    const SliceRecord* const found = i < found_.slices.size() ? &found_.slices[i] : nullptr;
    if (expected != nullptr && found != nullptr && *expected == *found) continue;
    if (expected == nullptr || found == nullptr || expected->sequence != found->sequence) {
      const SequenceName name = expected != nullptr ? expected->sequence : found->sequence;
      return differ(name, expected != nullptr ? SliceText(*expected) : "no tokens in this step",
                    found == nullptr ? "no tokens in this step"
                    : expected == nullptr
                        ? SliceText(*found)
                        : fmt::format("request {} in its place", IdOf(found->sequence.handle)));
    }
    return differ(expected->sequence, SliceText(*expected), SliceText(*found));
  }
  if (planning_.prefix_hits != found_.prefix_hits ||
      planning_.prefix_queries != found_.prefix_queries) {
    differ({},
           fmt::format("{} of {} tokens in the prefix cache", planning_.prefix_hits,
                       planning_.prefix_queries),
           fmt::format("{} of {}", found_.prefix_hits, found_.prefix_queries));
  }
}

Difference ReplayJournal::At(const SampledRow& row, Difference::Kind kind) const {
  const SequenceName name = NameOf(*row.sequence);
  return {.kind = kind,
          .step = 0,
          .handle = name.handle,
          .id = IdOf(name.handle),
          .sequence = name.index,
          .position = row.sequence->num_output_tokens(),
          .expected = "",
          .found = ""};
}

void ReplayJournal::CompareToken(SampledRow& row, int32_t recorded, bool replaces) {
  const SequenceName name = NameOf(*row.sequence);
  if (recorded < 0 || recorded >= vocab_size_)
    return Stop(fmt::format("token {} is outside of the vocabulary", recorded));
  const bool is_unchecked = unchecked_.contains(name.handle);
  if (!is_unchecked) {
    Answer& answer = answers_[{name.handle, name.index}];
    answer.is_compared = true;
    ++result_.num_tokens;
    if (row.has_failed || row.token != recorded) {
      answer.is_different = true;
      Difference difference =
          At(row, row.has_failed ? Difference::Kind::kFailure : Difference::Kind::kToken);
      difference.expected = std::to_string(recorded);
      difference.found = row.has_failed ? "no token" : std::to_string(row.token);
      Differ(std::move(difference));
    }
  }
  if (!is_unchecked && !replaces) return;
  row.token = recorded;
  row.has_failed = false;
}

void ReplayJournal::OnSampled(std::span<SampledRow> rows) {
  if (ended_) return;
  if (!options_.follows_steps) return SampleFreely(rows);
  const auto sampled = Take<SampledEvent>();
  if (!sampled) return;
  if (sampled->rows.size() != rows.size()) {
    Differ({.kind = Difference::Kind::kPlan,
            .expected = fmt::format("{} sampled tokens", sampled->rows.size()),
            .found = std::to_string(rows.size())});
    ended_ = true;
    return;
  }
  for (size_t i = 0; i < rows.size() && !ended_; ++i) {
    const RowRecord& expected = sampled->rows[i];
    SampledRow& row = rows[i];
    if (NameOf(*row.sequence) != expected.sequence) {
      Difference difference = At(row, Difference::Kind::kPlan);
      difference.expected = fmt::format("a token of request {}", IdOf(expected.sequence.handle));
      difference.found = "one of this request";
      Differ(std::move(difference));
      ended_ = true;
      return;
    }
    row.is_late = (expected.flags & RowRecord::kLate) != 0;
    row.is_slow = (expected.flags & RowRecord::kSlow) != 0;
    if (expected.has_token()) {
      CompareToken(row, expected.token, /*replaces=*/true);
    } else if ((expected.flags & RowRecord::kFailed) != 0) {
      if (!row.has_failed && !unchecked_.contains(expected.sequence.handle)) {
        Difference difference = At(row, Difference::Kind::kFailure);
        difference.expected = "no token";
        difference.found = std::to_string(row.token);
        Differ(std::move(difference));
      }
      row.has_failed = true;
    } else {
      row.has_failed = false;  // the step was late: the token is computed again
    }
  }
}

void ReplayJournal::SampleFreely(std::span<SampledRow> rows) {
  for (SampledRow& row : rows) {
    if (ended_) return;
    row.is_late = row.is_slow = false;
    const SequenceName name = NameOf(*row.sequence);
    const auto found = answers_.find({name.handle, name.index});
    if (found == answers_.end()) continue;
    const auto place = static_cast<size_t>(row.sequence->num_output_tokens());
    // There is no recorded token if the answer was stopped or aborted, or if the request failed.
    if (place < found->second.tokens.size() && !found->second.is_different)
      CompareToken(row, found->second.tokens[place], /*replaces=*/false);
  }
}

void ReplayJournal::OnStepFailed(std::string_view reason) {
  if (ended_) return;
  if (options_.follows_steps && next_ < events_.size() &&
      events_[next_].kind == EventKind::kStepFailed) {
    ++next_;
    return;
  }
  Differ({.kind = Difference::Kind::kFailure,
          .expected = "a step",
          .found = fmt::format("a failure: {}", reason)});
  if (options_.follows_steps) ended_ = true;
}

void ReplayJournal::Differ(Difference difference) {
  difference.step = result_.num_steps;
  if (!result_.first) result_.first = std::move(difference);
  if (options_.stops_at_difference) ended_ = true;
}

void ReplayJournal::Stop(std::string note) {
  if (result_.note.empty()) result_.note = std::move(note);
  ended_ = true;
}

const std::string& ReplayJournal::IdOf(uint64_t handle) const {
  static const std::string kUnknown;
  const auto found = ids_.find(handle);
  return found == ids_.end() ? kUnknown : found->second;
}

}  // namespace sluice::recording
