#include "recording/events.h"

namespace sluice {

template <typename Archive>
void Fields(Archive& archive, SamplingParams& params) {
  archive(params.temperature, params.top_p, params.top_k, params.min_p, params.presence_penalty,
          params.frequency_penalty, params.repetition_penalty, params.seed, params.logit_bias,
          params.allowed_token_ids, params.bad_words, params.max_tokens, params.min_tokens,
          params.ignore_eos, params.stop_token_ids, params.logprobs, params.logprob_token_ids,
          params.logprobs_mode, params.prompt_logprobs);
}

}  // namespace sluice

namespace sluice::recording {

// Not in an unnamed namespace, so that FieldWriter and FieldReader find these functions by
// argument-dependent lookup.
template <typename Archive>
void Fields(Archive& archive, SequenceName& name) {
  archive(name.handle, name.index);
}
template <typename Archive>
void Fields(Archive& archive, StartEvent& event) {
  archive(event.unix_us, event.plan);
}
template <typename Archive>
void Fields(Archive& archive, AddEvent& event) {
  archive(event.handle, event.time_us, event.arrival_us, event.id, event.seed, event.siblings_wait,
          event.num_sequences, event.priority, event.client, event.salt, event.adapter,
          event.use_prefix_cache, event.is_constrained, event.num_images, event.has_rows,
          event.second_text, event.num_prompt_tokens, event.prompt, event.block_hashes,
          event.sampling, event.end_tokens);
}
template <typename Archive>
void Fields(Archive& archive, AbortEvent& event) {
  archive(event.handle);
}
template <typename Archive>
void Fields(Archive& archive, StopEvent& event) {
  archive(event.sequence);
}
template <typename Archive>
void Fields(Archive& /*archive*/, AbortAllEvent& /*event*/) {}
template <typename Archive>
void Fields(Archive& /*archive*/, ResetCacheEvent& /*event*/) {}
template <typename Archive>
void Fields(Archive& /*archive*/, StepEvent& /*event*/) {}
template <typename Archive>
void Fields(Archive& archive, SliceRecord& slice) {
  archive(slice.sequence, slice.first, slice.num_tokens, slice.num_proposed, slice.samples);
}
template <typename Archive>
void Fields(Archive& archive, PlanEvent& event) {
  archive(event.time_us, event.proposed, event.held, event.owed, event.slices, event.preempted,
          event.prefix_queries, event.prefix_hits);
}
template <typename Archive>
void Fields(Archive& archive, RowRecord& row) {
  archive(row.sequence, row.token, row.flags);
}
template <typename Archive>
void Fields(Archive& archive, SampledEvent& event) {
  archive(event.rows);
}
template <typename Archive>
void Fields(Archive& archive, StepFailedEvent& event) {
  archive(event.reason);
}
template <typename Archive>
void Fields(Archive& archive, BreakEvent& event) {
  archive(event.what);
}
template <typename Archive>
void Fields(Archive& archive, GapEvent& event) {
  archive(event.num_dropped);
}
template <typename Archive>
void Fields(Archive& archive, ArrivalEvent& event) {
  archive(event.unix_us, event.path, event.body_bytes, event.body);
}
template <typename Archive>
void Fields(Archive& archive, FactsEvent& event) {
  archive(event.facts);
}

namespace {

bool IsConsistent(const AddEvent& event) {
  constexpr int64_t kMost = int64_t{1} << 40;
  return event.num_sequences >= 1 && event.num_prompt_tokens >= 1 &&
         event.num_prompt_tokens < kMost && event.sampling.max_tokens >= 1 &&
         event.sampling.logprobs_mode <= LogprobsMode::kProcessedLogits &&
         (event.prompt.empty() || std::ssize(event.prompt) == event.num_prompt_tokens);
}
template <typename Event>
bool IsConsistent(const Event& /*event*/) {
  return true;
}

}  // namespace

template <typename Event>
void AppendEvent(std::string& out, const Event& event) {
  out.push_back(static_cast<char>(Event::kKind));
  // The size takes four bytes, so that it can be filled in afterwards.
  const size_t place = out.size();
  out.append(4, '\0');
  FieldWriter writer(out);
  Fields(writer, const_cast<Event&>(event));
  const auto size = static_cast<uint32_t>(out.size() - place - 4);
  for (int i = 0; i < 4; ++i)
    out[place + static_cast<size_t>(i)] = static_cast<char>(size >> (8 * i));
}

bool TakeEvent(std::string_view& bytes, EventKind& kind, std::string_view& fields) {
  constexpr size_t kHead = 5;
  if (bytes.size() < kHead) return false;
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i)
    size |= static_cast<size_t>(static_cast<unsigned char>(bytes[1 + i])) << (8 * i);
  if (size > kMaxEventBytes || size > bytes.size() - kHead) return false;
  kind = static_cast<EventKind>(bytes[0]);
  fields = bytes.substr(kHead, size);
  bytes.remove_prefix(kHead + size);
  return true;
}

template <typename Event>
std::optional<Event> ReadEvent(std::string_view fields) {
  Event event;
  FieldReader reader(fields);
  Fields(reader, event);
  if (!reader.done() || !IsConsistent(event)) return std::nullopt;
  return event;
}

#define SLUICE_EVENT(Event)                                     \
  template void AppendEvent<Event>(std::string&, const Event&); \
  template std::optional<Event> ReadEvent<Event>(std::string_view);
SLUICE_EVENT(StartEvent)
SLUICE_EVENT(AddEvent)
SLUICE_EVENT(AbortEvent)
SLUICE_EVENT(StopEvent)
SLUICE_EVENT(AbortAllEvent)
SLUICE_EVENT(ResetCacheEvent)
SLUICE_EVENT(StepEvent)
SLUICE_EVENT(PlanEvent)
SLUICE_EVENT(SampledEvent)
SLUICE_EVENT(StepFailedEvent)
SLUICE_EVENT(BreakEvent)
SLUICE_EVENT(GapEvent)
SLUICE_EVENT(ArrivalEvent)
SLUICE_EVENT(FactsEvent)
#undef SLUICE_EVENT

std::string_view EventName(EventKind kind) {
  switch (kind) {
    case EventKind::kStart: return "the start of an engine";
    case EventKind::kAdd: return "a request";
    case EventKind::kAbort: return "an abort";
    case EventKind::kStop: return "a stop";
    case EventKind::kAbortAll: return "the abort of all requests";
    case EventKind::kResetCache: return "a reset of the prefix cache";
    case EventKind::kStep: return "a step";
    case EventKind::kPlan: return "a plan";
    case EventKind::kSampled: return "sampled tokens";
    case EventKind::kStepFailed: return "a failed step";
    case EventKind::kBreak: return "a break";
    case EventKind::kGap: return "a gap";
    case EventKind::kArrival: return "an arrival";
    case EventKind::kFacts: return "facts";
  }
  return "an unknown event";
}

}  // namespace sluice::recording
