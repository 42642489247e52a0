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

// Values are part of the format.
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

// Largest event; larger ones are dropped and leave a gap.
inline constexpr size_t kMaxEventBytes = size_t{16} << 20;

// A sequence of a request.
struct SequenceName {
  uint64_t handle = 0;
  int32_t index = 0;

  bool operator==(const SequenceName&) const = default;
};

// A core begins. `plan`: JSON with what steps depend on (plan_facts.h). `unix_us`: the wall time of
// the scheduler's time 0.
struct StartEvent {
  static constexpr EventKind kKind = EventKind::kStart;
  int64_t unix_us = 0;
  std::string plan;
};

// A request enters the engine.
struct AddEvent {
  static constexpr EventKind kKind = EventKind::kAdd;
  uint64_t handle = 0;
  int64_t time_us = 0;     // the scheduler's time
  int64_t arrival_us = 0;  // of the request at the server, likewise; may be negative
  std::string id;
  uint64_t seed = 0;  // of sequence 0; sequence j uses seed + j
  bool siblings_wait = false;
  int32_t num_sequences = 1;
  int64_t priority = 0;
  uint64_t client = 0;
  // Equal salts and adapters have equal numbers; 0: none. The salt itself is not recorded.
  uint64_t salt = 0;
  std::string adapter;  // "": the base model
  bool use_prefix_cache = true;
  bool is_constrained = false;  // its tokens cannot be computed again from this event
  // What a replay does not have; 0 or false in requests that it can repeat.
  int32_t num_images = 0;
  bool has_rows = false;
  std::optional<int32_t> second_text;
  int64_t num_prompt_tokens = 0;
  std::vector<int32_t> prompt;  // empty in a recording of hashes
  // In a recording of hashes: of each whole block of the prompt, with all blocks before it.
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

// A plan: what it depended on besides requests and earlier plans, and what was decided.
struct PlanEvent {
  static constexpr EventKind kKind = EventKind::kPlan;
  int64_t time_us = 0;
  std::vector<std::pair<SequenceName, std::vector<int32_t>>> proposed;
  std::vector<SequenceName> held;
  std::vector<std::pair<SequenceName, int64_t>> owed;
  // Decisions.
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

// What follows cannot be replayed from what came before.
struct BreakEvent {
  static constexpr EventKind kKind = EventKind::kBreak;
  std::string what;
};

// Events were dropped here, since the writer could not keep up or an event was too large.
struct GapEvent {
  static constexpr EventKind kKind = EventKind::kGap;
  uint64_t num_dropped = 0;
};

// An HTTP request with a body, as it arrived; headers and query are never recorded. `unix_us`: wall
// time. In a recording of hashes `body` is empty.
struct ArrivalEvent {
  static constexpr EventKind kKind = EventKind::kArrival;
  int64_t unix_us = 0;
  std::string path;
  uint64_t body_bytes = 0;
  std::string body;
};

// JSON: facts that were known only after the recording began, such as the digest of the weights.
struct FactsEvent {
  static constexpr EventKind kKind = EventKind::kFacts;
  std::string facts;
};

// Appends an event: its kind, its size, its fields.
template <typename Event>
void AppendEvent(std::string& out, const Event& event);

// Takes the next event from the front of `bytes`: its kind and its fields. False, with `bytes`
// unchanged, if there is none or it is not whole.
bool TakeEvent(std::string_view& bytes, EventKind& kind, std::string_view& fields);

// nullopt if `fields` are not those of an `Event`, or do not fit each other.
template <typename Event>
std::optional<Event> ReadEvent(std::string_view fields);

// "a plan", "a request" and so on.
std::string_view EventName(EventKind kind);

}  // namespace sluice::recording
