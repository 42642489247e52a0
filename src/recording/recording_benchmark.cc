// Measures the time that recording adds to a step of decoding sequences, on the engine's thread.
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "recording/event_journal.h"
#include "recording/flight_recorder.h"

namespace sluice::recording {
namespace {

void RecordStep(benchmark::State& state) {
  const auto num_sequences = static_cast<size_t>(state.range(0));
  std::string name = "/tmp/recordingXXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  RecorderSettings settings;
  settings.folder = folder;
  settings.max_bytes = uint64_t{64} << 20;
  auto recorder = FlightRecorder::Start(std::move(settings));
  EngineJournal& journal = *(*recorder)->journal(0);
  std::vector<ActiveRequest> requests(num_sequences);
  std::vector<ScheduledSequence*> running;
  std::vector<SampledRow> rows;
  StepPlan plan;
  for (size_t i = 0; i < num_sequences; ++i) {
    requests[i].handle = 1000 + i;
    requests[i].sequences.push_back(std::make_unique<ActiveSequence>());
    ActiveSequence* const sequence = requests[i].sequences.back().get();
    sequence->request = &requests[i];
    running.push_back(sequence);
    rows.push_back({.sequence = sequence, .token = 100'000});
    plan.slices.push_back({.sequence = sequence, .first = 2000, .num_tokens = 1, .samples = true});
  }
  int64_t time_us = 0;
  for (auto _ : state) {
    time_us += 10'000;
    journal.OnStep();
    journal.OnPlanning(time_us, running);
    journal.OnPlan(plan);
    journal.OnSampled(rows);
  }
  state.counters["dropped"] = static_cast<double>((*recorder)->counts().dropped_events);
  recorder->reset();
  std::filesystem::remove_all(folder);
}
BENCHMARK(RecordStep)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice::recording
