// Captures the steps of a decoder on a device as graphs, and decides which steps are replayed.
#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "device/device_bytes.h"
#include "models/device/device_decoder.h"
#include "models/device/device_graphs.h"

namespace sluice {
namespace {

const void* KeysOf(const KvCache& cache) {
  return cache.layer(0).k;
}

}  // namespace

const StepGraphs::Size* DeviceDecoder::GraphsFor(const StepInput& input,
                                                 const KvCache& cache) const {
  // Graphs do not contain image rows or adapters. Graphs of a drafting head read the head's own
  // hidden rows.
  if (!input.image_rows.empty()) return nullptr;
  if (options_.drafter != nullptr && input.takes_target) return nullptr;
  if (std::ranges::any_of(input.adapters, [](int32_t slot) { return slot >= 0; })) return nullptr;
  const size_t sequences = input.slices.size() / static_cast<size_t>(input.num_groups);
  if (input.tokens.size() != sequences || input.logit_rows.size() != sequences) return nullptr;
  const auto* const graphs = graphs_.Find(static_cast<int64_t>(sequences), KeysOf(cache));
  if (graphs == nullptr) return nullptr;
  const bool has_room = DeviceStepInputs::HasRoomForSnapshots({.rows = graphs->sequences},
                                                              input.state_snapshots.size());
  return has_room ? graphs : nullptr;
}

Result<std::unique_ptr<DeviceGraph>> DeviceDecoder::Record(const StepInput& input, bool runs_before,
                                                           PaddedStep& padded,
                                                           const KvCache& cache) {
  DeviceStream& stream = *parts_.stream;
  const auto run = [&] { RunProgram(input, padded.rows, padded.rows, cache, /*results=*/nullptr); };
  const auto prepare = [&]() -> Status {
    parts_.inputs.Send(stream, input, &padded);
    if (runs_before) run();
    if (parts_.ranks == nullptr) return stream.Synchronize();
    parts_.ranks->group().Wait(stream);
    return {};
  };
  try {
    RETURN_IF_ERROR(prepare());
  } catch (const std::exception& error) {
    // The kernels of other ranks may be waiting for this rank's kernels.
    if (parts_.ranks != nullptr) parts_.ranks->group().Abort(error.what());
    throw;
  }
  RETURN_IF_ERROR(stream.BeginCapture());
  is_recording_ = true;
  std::exception_ptr thrown;
  try {
    run();
  } catch (...) {
    thrown = std::current_exception();
  }
  is_recording_ = false;
  auto graph = stream.EndCapture();
  if (thrown) std::rethrow_exception(thrown);
  return graph;
}

Status DeviceDecoder::RecordSteps(const RecordedSteps& steps, KvCache& cache) {
  if (steps.sequences.empty()) return {};
  CHECK(spec_.head.kind == HeadSpec::Kind::kVocabulary);
  if (parts_.ranks != nullptr && !parts_.ranks->has_peers()) {
    if (place_.rank() == 0)
      LOG_WARNING(
          "models",
          "steps are computed without graphs: ranks exchange over NCCL, which is not captured");
    return {};
  }
  CHECK_EQ(num_in_flight_, 0);
  CHECK_LE(steps.sequences.back(),
           std::min({options_.max_slices, options_.max_rows, options_.max_logit_rows}));
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const int64_t free_before, parts_.device.FreeBytes());
  // Any decode step is suitable: one sequence with one token, in the first block.
  const int32_t token = 0, position = 0, row = 0, block = 0;
  const std::vector<kernels::AttentionSlice> slices(static_cast<size_t>(cache.num_groups()),
                                                    {0, 1, 0, &block});
  StepInput input = {{&token, 1}, {&position, 1}, slices, {&row, 1}, cache.num_groups()};
  const StateSlot state = {.slot = 0};
  if (spec_.KeepsStates()) input.states = {&state, 1};
  if (options_.drafter != nullptr) {
    input.takes_target = false;
    input.hidden_memory = handed_rows();
    input.hidden_rows = {&row, 1};
  }
  StepGraphs graphs(steps, KeysOf(cache));
  std::vector<int64_t> recorded;
  int64_t num_graphs = 0, num_operations = 0;
  for (StepGraphs::Size& size : graphs.sizes()) {
    const auto record = [&](int level) -> Result<std::unique_ptr<DeviceGraph>> {
      PaddedStep padded = {.rows = size.sequences, .level = level};
      try {
        return Record(input, steps.runs_before, padded, cache);
      } catch (const GroupError&) {
        throw;
      } catch (const std::exception& error) {
        return Fail(ErrorCode::kInternal, error.what());
      }
    };
    std::string failure;
    for (int level = 0; level < parts_.inputs.NumLevels(size.sequences); ++level) {
      auto graph = record(level);
      if (!graph) failure = graph.error().message;
      // All ranks must replay the same steps.
      const bool all_have =
          parts_.ranks == nullptr ? graph.has_value() : parts_.ranks->group().AllAgree(!!graph);
      if (!all_have && graph) failure = "another rank could not capture it";
      if (!all_have) break;
      size.graphs.push_back(*std::move(graph));
    }
    if (failure.empty()) {
      recorded.push_back(size.sequences);
      num_graphs += std::ssize(size.graphs);
      for (const auto& graph : size.graphs) num_operations += graph->num_operations();
      continue;
    }
    size.graphs.clear();
    RETURN_IF_ERROR(parts_.device.CheckAlive());
    // Called so that no later call reports this failure.
    static_cast<void>(parts_.stream->Synchronize());
    LOG_WARNING("models", "steps of {} sequences are computed without a graph: {}", size.sequences,
                failure);
  }
  graphs_ = std::move(graphs);
  ASSIGN_OR_RETURN(const int64_t free_after, parts_.device.FreeBytes());
  if (num_graphs == 0) return {};
  const int64_t taken = std::max<int64_t>(0, free_before - free_after);
  ModelOptions options = options_;
  options.recorded = steps;
  const int64_t planned =
      GraphBytes(parts_.executor->program(), parts_.executor->weights(), spec_, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  LOG_INFO("models",
           "{} graphs of {} operations were captured, for steps that continue {} sequences{}; this "
           "took {:.2f} s and {} of the device's memory, of {} in the memory plan",
           num_graphs, num_operations, fmt::join(recorded, ", "),
           steps.pads ? " or, padded, fewer" : "", seconds.count(), DeviceBytesText(taken),
           DeviceBytesText(planned));
  if (taken > planned)
    LOG_WARNING("models",
                "graphs take more memory than planned: if memory runs out, lower "
                "gpu_memory_utilization, or capture fewer sizes (cudagraph_capture_sizes)");
  return {};
}

}  // namespace sluice
