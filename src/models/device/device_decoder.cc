#include "models/device/device_decoder.h"

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "models/score_head.h"
#include "models/step_check.h"

namespace sluice {
DeviceDecoder::DeviceDecoder(ModelConfig config, const ModelOptions& options, DecoderSpec spec,
                             const RankPlace& place, Parts parts)
    : Model(std::move(config)),
      options_(options),
      spec_(std::move(spec)),
      place_(place),
      parts_(std::move(parts)) {
  if (parts_.lora != nullptr) {
    for (Begun& begun : begun_) begun.slots.reserve(static_cast<size_t>(options.max_slices));
  }
  if (spec_.head.kind != HeadSpec::Kind::kScores || place_.rank() != 0) return;
  for (Begun& begun : begun_) {
    begun.hidden.resize(static_cast<size_t>(std::min(options.max_logit_rows, options.max_rows) *
                                            spec_.hidden_size));
  }
}

DeviceDecoder::~DeviceDecoder() {
  if (parts_.ranks != nullptr) parts_.ranks->group().Abort("");
  // Waits, because no work may be running when the memory is freed. The step that failed has
  // reported its error.
  static_cast<void>(parts_.stream->Synchronize());
  if (pinned_logits_ != nullptr) parts_.device.Unpin(pinned_logits_);
  if (parts_.lora != nullptr) parts_.lora->Close();
}

Status DeviceDecoder::Tune() {
  return parts_.executor->Tune();
}

void DeviceDecoder::PrepareLogits(std::span<float> logits) {
  if (pinned_logits_ != nullptr) parts_.device.Unpin(pinned_logits_);
  pinned_logits_ = nullptr;
  if (logits.empty()) return;
  if (parts_.device.Pin(logits.data(), static_cast<int64_t>(logits.size_bytes())))
    pinned_logits_ = logits.data();
}

void DeviceDecoder::FinishLogits(const StepInput& input, float* logits) {
  auto* const on_device = reinterpret_cast<float*>(parts_.executor->BufferAt("logits"));
  const auto copy = [&](size_t begin, size_t end) {
    const int64_t offset = static_cast<int64_t>(begin) * NumLogits();
    const int64_t count = static_cast<int64_t>(end - begin) * NumLogits();
    if (count > 0) parts_.stream->CopyToHost(logits + offset, on_device + offset, count * 4);
  };
  const size_t rows = input.logit_rows.size();
  if (input.draws.empty()) return copy(0, rows);
  device::SampleRowsArgs args = parts_.inputs.Draws();
  args.logits = on_device;
  args.cols = spec_.vocab_size;
  parts_.kernels.sample_rows(parts_.stream->handle(), args);
  parts_.inputs.ReceiveDraws(*parts_.stream);
  size_t begin = 0;  // first row of the current run of rows that were not drawn
  for (size_t row = 0; row <= rows; ++row) {
    if (row < rows && !input.draws[row].is_wanted) continue;
    copy(begin, row);
    begin = row + 1;
  }
}

void DeviceDecoder::PrepareStates(const StepInput& input, const StateCache& states) {
  const int64_t bytes = states.slot_bytes();
  if (bytes == 0) return;  // the stage has no layers with states
  for (const StateCopy& copy : input.state_copies) {
    if (copy.from != copy.to)
      parts_.stream->CopyOnDevice(states.slot(copy.to), states.slot(copy.from), bytes);
  }
  for (const StateSlot& state : input.states) {
    if (state.is_new) parts_.stream->Fill(states.slot(state.slot), 0, bytes);
  }
}

DeviceImages DeviceDecoder::device_images() {
  if (options_.image_rows == 0 || parts_.ranks != nullptr) return {};
  return {.rows = reinterpret_cast<float*>(parts_.executor->BufferAt(kImageRows)),
          .stream = parts_.stream.get()};
}

void DeviceDecoder::StoreImageRows(std::span<const StoredImageRow> rows) {
  if (rows.empty()) return;
  const int64_t width = spec_.ImageRowWidth();
  auto* const memory = reinterpret_cast<float*>(parts_.executor->BufferAt(kImageRows));
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    // Copies consecutive rows at once.
    const StoredImageRow& first = rows[begin];
    for (end = begin + 1; end < rows.size(); ++end) {
      const auto offset = static_cast<int32_t>(end - begin);
      if (rows[end].place != first.place + offset ||
          rows[end].values != first.values + offset * width)
        break;
    }
    CHECK(
        first.place >= 0 && first.place + static_cast<int64_t>(end - begin) <= options_.image_rows,
        "place {} of {} rows of images", first.place, options_.image_rows);
    parts_.stream->CopyToDevice(memory + first.place * width, first.values,
                                static_cast<int64_t>(end - begin) * width * 4);
  }
  // Waits, because the caller may overwrite the values afterwards.
  if (const Status status = parts_.stream->Synchronize(); !status)
    throw std::runtime_error(status.error().message);
}

void DeviceDecoder::Enqueue(const StepInput& input, const KvCache& cache, float* logits) {
  StoreImageRows(input.stored_image_rows);
  PrepareStates(input, cache.states());
  if (const StepGraphs::Size* graphs = GraphsFor(input, cache); graphs != nullptr) {
    PaddedStep padded = {.rows = graphs->sequences};
    parts_.inputs.Send(*parts_.stream, input, &padded);
    parts_.stream->Replay(*graphs->graphs[static_cast<size_t>(padded.level)]);
    ++num_replayed_;
    if (place_.rank() == 0) FinishLogits(input, logits);
    return;
  }
  parts_.inputs.Send(*parts_.stream, input);
  const bool has_logits = spec_.head.kind == HeadSpec::Kind::kVocabulary;
  Begun& begun = begun_[newest_];
  const bool scores = spec_.head.kind == HeadSpec::Kind::kScores && place_.rank() == 0;
  const int64_t rows = RunProgram(input, std::ssize(input.tokens), std::ssize(input.logit_rows),
                                  cache, scores ? begun.hidden.data() : logits);
  if (rows == 0) return;
  if (scores) {
    begun.results = logits;
    begun.num_results = rows;
  }
  if (has_logits && place_.rank() == 0) FinishLogits(input, logits);
}

int64_t DeviceDecoder::RunProgram(const StepInput& input, int64_t rows, int64_t logit_rows,
                                  const KvCache& cache, float* results) {
  return parts_.executor->Run({.inputs = &parts_.inputs,
                               .cache = &cache,
                               .rows = rows,
                               .wanted = logit_rows,
                               .adapters = begun_[newest_].slots,
                               .results = results,
                               .hidden = input.hidden_memory,
                               .takes_target = input.takes_target,
                               .is_recorded = is_recording_});
}

void DeviceDecoder::Begin(ThreadPool& /*threads*/, const StepInput& input, KvCache& cache,
                          float* logits) {
  CheckStepInput(spec_, options_, input, cache, takes_drawn_tokens());
  CHECK_LT(num_in_flight_, steps_in_flight());
  const size_t index = (first_begun_ + static_cast<size_t>(num_in_flight_)) % begun_.size();
  Begun& begun = begun_[index];
  begun.draws = {};
  begun.end = parts_.events[index].get();
  begun.failure.clear();
  begun.num_results = 0;
  newest_ = index;
  begun.slots.assign(input.adapters.begin(), input.adapters.end());
  std::sort(begun.slots.begin(), begun.slots.end());
  begun.slots.erase(std::unique(begun.slots.begin(), begun.slots.end()), begun.slots.end());
  if (parts_.lora != nullptr) parts_.lora->BeginUse(begun.slots);
  try {
    if (!input.tokens.empty()) Enqueue(input, cache, logits);
    parts_.stream->Record(*begun.end);
  } catch (const std::exception& error) {
    // Enqueued operations still read the inputs and write the logits. The caller may reuse this
    // memory once this function throws, so wait for them.
    if (parts_.ranks != nullptr) parts_.ranks->group().Abort(error.what());
    static_cast<void>(parts_.stream->Synchronize());
    FailInFlight(error.what());
    EndUse(begun);
    throw;
  }
  if (place_.rank() == 0 && !input.tokens.empty()) begun.draws = input.draws;
  begun.buffer = parts_.inputs.buffer();
  ++num_in_flight_;
}

void DeviceDecoder::Finish(ThreadPool& threads) {
  CHECK_GT(num_in_flight_, 0);
  const Begun& begun = begun_[first_begun_];
  struct End {
    DeviceDecoder& decoder;
    const Begun& begun;
    ~End() { decoder.EndUse(begun); }
  };
  const End end{*this, begun};
  first_begun_ = (first_begun_ + 1) % begun_.size();
  --num_in_flight_;
  if (!begun.failure.empty()) throw std::runtime_error(begun.failure);
  if (parts_.ranks != nullptr) {
    parts_.ranks->group().Wait(*parts_.stream);
  } else if (const Status status = parts_.stream->SynchronizeUntil(*begun.end); !status) {
    static_cast<void>(parts_.stream->Synchronize());
    FailInFlight(status.error().message);
    throw std::runtime_error(status.error().message);
  }
  parts_.inputs.ReadDraws(begun.buffer, begun.draws);
  if (begun.num_results > 0) {
    ScoreRows(threads, parts_.scores, spec_.hidden_size, spec_.head.num_scores, begun.hidden.data(),
              begun.num_results, begun.results);
  }
}

void DeviceDecoder::EndUse(const Begun& begun) {
  if (parts_.lora != nullptr) parts_.lora->EndUse(begun.slots);
}

// Steps in flight may have caused the failure, or depend on the failed step.
void DeviceDecoder::FailInFlight(const std::string& reason) {
  for (int i = 0; i < num_in_flight_; ++i)
    begun_[(first_begun_ + static_cast<size_t>(i)) % begun_.size()].failure = reason;
}

}  // namespace sluice
