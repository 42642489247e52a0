// The events of a recording (docs/recording.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "recording/event_bytes.h"
#include "sampler/sampling_params.h"

namespace sluice::recording {

// The values are part of the file format.
enum class EventKind : uint8_t {
  kStart = 1,
  kAdd = 2,
  kAbort = 3,
  kStop = 4,
  kAbortAll = 5,
  kResetCache = 6,
  kStep = 7,
  kPlan = 8,
  kSampled = 9,
  kStepFailed = 10,
  kBreak = 11,
  kGap = 12,
  kArrival = 13,
  kFacts = 14,
};

// Maximum bytes of an event. Larger events are dropped and leave a gap.
inline constexpr size_t kMaxEventBytes = size_t{16} << 20;

// Identifies a sequence of a request.
struct SequenceName {
  uint64_t handle = 0;
  int32_t index = 0;

  bool operator==(const SequenceName&) const = default;
};

// An engine core starts. `plan`: JSON with the facts that steps depend on (plan_facts.h).
// `unix_us`: wall-clock time at the scheduler's time 0.
struct StartEvent {
  static constexpr EventKind kKind = EventKind::kStart;
  int64_t unix_us = 0;
  std::string plan;
};

// A request enters the engine.
struct AddEvent {
  static constexpr EventKind kKind = EventKind::kAdd;
  uint64_t handle = 0;
  int64_t time_us = 0;  // on the scheduler's clock
  // Arrival of the request at the server, on the scheduler's clock; may be negative.
  int64_t arrival_us = 0;
  std::string id;
  uint64_t seed = 0;  // seed of sequence 0; sequence j uses seed + j
  bool siblings_wait = false;
  int32_t num_sequences = 1;
  int64_t priority = 0;
  uint64_t client = 0;
  // Numbers that stand for the cache salt and for the adapter. Equal salts have equal numbers, and
  // so do equal adapters; 0: none. The salt itself is not recorded.
  uint64_t salt = 0;
  std::string adapter;  // name of the adapter; "": the base model
  bool use_prefix_cache = true;
  bool is_constrained = false;  // whether its tokens cannot be computed again from this event
  // Inputs whose content is not recorded. All are 0 or false in requests that can be replayed.
  int32_t num_images = 0;
  bool has_rows = false;
  std::optional<int32_t> second_text;
  int64_t num_prompt_tokens = 0;
  std::vector<int32_t> prompt;  // empty in a recording of hashes
  // In a recording of hashes: for each whole block of the prompt, a hash of it and all blocks
  // before it.
  std::vector<uint64_t> block_hashes;
  SamplingParams sampling;
  SharedList<int32_t> end_tokens;
};

struct AbortEvent {
  static constexpr EventKind kKind = EventKind::kAbort;
  uint64_t handle = 0;
};

struct StopEvent {
  static constexpr EventKind kKind = EventKind::kStop;
  SequenceName sequence;
};

struct AbortAllEvent {
  static constexpr EventKind kKind = EventKind::kAbortAll;
};
struct ResetCacheEvent {
  static constexpr EventKind kKind = EventKind::kResetCache;
};
struct StepEvent {
  static constexpr EventKind kKind = EventKind::kStep;
};

struct SliceRecord {
  SequenceName sequence;
  int64_t first = 0;
  int64_t num_tokens = 0;
  int64_t num_proposed = 0;
  bool samples = false;

  bool operator==(const SliceRecord&) const = default;
};

// A plan of the scheduler: its decisions, and its inputs in addition to requests and earlier plans.
struct PlanEvent {
  static constexpr EventKind kKind = EventKind::kPlan;
  int64_t time_us = 0;
  std::vector<std::pair<SequenceName, std::vector<int32_t>>> proposed;
  std::vector<SequenceName> held;
  std::vector<std::pair<SequenceName, int64_t>> owed;
  // Decisions of the scheduler.
  std::vector<SliceRecord> slices;
  std::vector<SequenceName> preempted;
  int64_t prefix_queries = 0, prefix_hits = 0;
};

struct RowRecord {
  SequenceName sequence;
  int32_t token = 0;
  uint8_t flags = 0;  // kLate, kSlow, kFailed

  static constexpr uint8_t kLate = 1, kSlow = 2, kFailed = 4;
  bool has_token() const { return (flags & (kLate | kFailed)) == 0; }
  bool operator==(const RowRecord&) const = default;
};

struct SampledEvent {
  static constexpr EventKind kKind = EventKind::kSampled;
  std::vector<RowRecord> rows;
};

struct StepFailedEvent {
  static constexpr EventKind kKind = EventKind::kStepFailed;
  std::string reason;
};

// Something happened that a replay cannot repeat, such as the use of new weights. The events after
// this one cannot be replayed.
struct BreakEvent {
  static constexpr EventKind kKind = EventKind::kBreak;
  std::string what;
};

// Events were dropped here because the writer could not keep up or an event was too large.
struct GapEvent {
  static constexpr EventKind kKind = EventKind::kGap;
  uint64_t num_dropped = 0;
};

// An HTTP request with a body, as it arrived. Headers and query are never recorded. `unix_us`:
// wall-clock time. In a recording of hashes, `body` is empty.
struct ArrivalEvent {
  static constexpr EventKind kKind = EventKind::kArrival;
  int64_t unix_us = 0;
  std::string path;
  uint64_t body_bytes = 0;
  std::string body;
};

// JSON with facts that became known after the recording began, such as the digest of the weights.
struct FactsEvent {
  static constexpr EventKind kKind = EventKind::kFacts;
  std::string facts;
};

// Appends an event: its kind, its size and its fields.
template <typename Event>
void AppendEvent(std::string& out, const Event& event);

// Removes the next event from the front of `bytes` and returns its kind and its fields. Returns
// false, with `bytes` unchanged, if there is none or it is incomplete.
bool TakeEvent(std::string_view& bytes, EventKind& kind, std::string_view& fields);

// Parses an event's fields. nullopt if they are not the fields of an `Event`, or contradict each
// other.
template <typename Event>
std::optional<Event> ReadEvent(std::string_view fields);

// Returns "a plan", "a request" and so on.
std::string_view EventName(EventKind kind);

}  // namespace sluice::recording
