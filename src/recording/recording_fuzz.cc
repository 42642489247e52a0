// Fuzz target: reads any bytes as a file of a recording. Events must stay the same when they are
// read and written back. A file must not have more chunks than fit into its size.
#include "base/fuzz_input.h"
#include "recording/events.h"
#include "recording/plan_facts.h"
#include "recording/segment.h"

namespace {

using namespace sluice::recording;

template <typename Event>
void Check(std::string_view fields) {
  const auto event = ReadEvent<Event>(fields);
  if (!event) return;
  std::string bytes;
  AppendEvent(bytes, *event);
  std::string_view rest = bytes, again;
  EventKind kind{};
  sluice::fuzz::Require(TakeEvent(rest, kind, again) && kind == Event::kKind && rest.empty());
  sluice::fuzz::Require(ReadEvent<Event>(again).has_value());
}

void CheckEvents(std::string_view events) {
  EventKind kind{};
  std::string_view fields;
  while (TakeEvent(events, kind, fields)) {
    Check<StartEvent>(fields);
    Check<AddEvent>(fields);
    Check<AbortEvent>(fields);
    Check<StopEvent>(fields);
    Check<PlanEvent>(fields);
    Check<SampledEvent>(fields);
    Check<ArrivalEvent>(fields);
    Check<FactsEvent>(fields);
    sluice::fuzz::Require(!EventName(kind).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view bytes = fuzz::Text(data, size);
  const auto segment = ReadSegment(bytes);
  fuzz::Require(segment.has_value() || !segment.error().message.empty());
  if (segment) {
    fuzz::Require(segment->chunks.size() <= size);
    for (const Chunk& chunk : segment->chunks) CheckEvents(chunk.events);
  }
  // Also reads the bytes as events without checksums, which would reject most inputs.
  CheckEvents(bytes);
  const auto sizes = ReadPlanSizes(bytes);
  fuzz::Require(sizes.has_value() || !sizes.error().message.empty());
  return 0;
}
