// The decoder on a device: runs the program of a DecoderSpec or of one rank's share of it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "kernels/cuda/device_linear.h"
#include "models/decoder_spec.h"
#include "models/device/device_executor.h"
#include "models/device/device_graphs.h"
#include "models/device/device_lora.h"
#include "models/device/device_ranks.h"
#include "models/device/device_step.h"
#include "models/model.h"

namespace sluice {

// Ownership: the device and the memory of weights and workspace outlive it.
//
// With several ranks, all ranks call Begin and Finish with the same input, as in DecoderModel, and
// one step is in flight at a time. A single rank can enqueue the next step while one runs.
class DeviceDecoder final : public Model {
 public:
  struct Parts {
    Device& device;
    const device::DeviceKernels& kernels;
    std::shared_ptr<DeviceStream> stream;  // a drafting head uses its target's stream
    std::unique_ptr<device::DeviceLinear> linear;
    DeviceStepInputs inputs;
    std::unique_ptr<DeviceRanks> ranks;  // null: a single rank
    std::unique_ptr<DeviceExecutor> executor;
    // Events that are recorded at the ends of steps.
    std::array<std::unique_ptr<DeviceEvent>, DeviceStepInputs::kMostInFlight> events;
    // Page-locked: number of rows per expert in a large step; empty without experts.
    DeviceBuffer expert_rows = {};
    std::vector<float> scores = {};              // DecoderWeights::scores; only on the first rank
    DeviceTables tables = {};                    // the tables of this model
    std::shared_ptr<DeviceLoraSlots> lora = {};  // null: no adapters are served
  };

  // `spec`: the whole model. The executor's program computes the share of the rank at `place`.
  DeviceDecoder(ModelConfig config, const ModelOptions& options, DecoderSpec spec,
                const RankPlace& place, Parts parts);
  ~DeviceDecoder() override;

  // Measures matrix products for which several kernels exist, and chooses the fastest. Call before
  // the first step.
  Status Tune();

  bool draws_tokens() const override {
    return spec_.head.kind == HeadSpec::Kind::kVocabulary && options_.drafter == nullptr &&
           spec_.vocab_size <= kernels::kMostDrawnTokens;
  }
  DrawLimits draw_limits() const override {
    return draws_tokens() ? DeviceStepInputs::DrawLimitsOf(spec_, options_) : DrawLimits();
  }
  void PrepareLogits(std::span<float> logits) override;
  void Forward(ThreadPool& threads, const StepInput& input, KvCache& cache,
               float* logits) override {
    Begin(threads, input, cache, logits);
    Finish(threads);
  }
  int steps_in_flight() const override {
    return parts_.ranks == nullptr ? DeviceStepInputs::kMostInFlight : 1;
  }
  std::shared_ptr<LoraStore> lora() override { return parts_.lora; }
  DeviceImages device_images() override;
  DeviceHidden handed_rows() override;
  DeviceHidden kept_rows() override;
  void KeepRows(const DeviceHidden& from, int64_t first, int64_t count, int64_t place) override;
  // Used by the model's drafting head.
  const std::shared_ptr<DeviceStream>& stream() const { return parts_.stream; }
  const DeviceTables& tables() const { return parts_.tables; }
  bool takes_drawn_tokens() const override { return parts_.ranks == nullptr && draws_tokens(); }
  Status RecordSteps(const RecordedSteps& steps, KvCache& cache) override;
  int64_t num_replayed() const override { return num_replayed_; }
  // Captures as a graph a step in which each sequence has one token. `input` has been sent;
  // `runs_before`: see RecordedSteps. Sets `padded` as Send does. Throws the exceptions of the
  // model's steps.
  Result<std::unique_ptr<DeviceGraph>> Record(const StepInput& input, bool runs_before,
                                              PaddedStep& padded, const KvCache& cache);
  void Begin(ThreadPool& threads, const StepInput& input, KvCache& cache, float* logits) override;
  void Finish(ThreadPool& threads) override;

 private:
  // An enqueued step.
  struct Begun {
    std::span<TokenDraw> draws;
    int buffer = 0;              // index of its host buffer in parts_.inputs
    DeviceEvent* end = nullptr;  // event recorded after the step
    // Failure of an earlier step, which makes the results of this step invalid.
    std::string failure;
    // For HeadSpec::Kind::kScores: destination to which Finish writes the scores computed from
    // `hidden`.
    float* results = nullptr;
    int64_t num_results = 0;     // number of rows of results
    std::vector<float> hidden;   // [max_logit_rows, hidden], or empty
    std::vector<int32_t> slots;  // slots of the step's adapters; -1 for rows without an adapter
  };
  void Enqueue(const StepInput& input, const KvCache& cache, float* logits);
  // Copies rows of images to the device.
  void StoreImageRows(std::span<const StoredImageRow> rows);
  // Enqueues the operations on states that precede a step's tokens: copies of slots, and zeroing
  // the slots of new sequences.
  void PrepareStates(const StepInput& input, const StateCache& states);
  // Enqueues a step of `input`, which has been sent. The operations are the same for all steps with
  // equal numbers of rows in which all logits are wanted. Returns the number of rows that have
  // results.
  int64_t RunProgram(const StepInput& input, int64_t rows, int64_t logit_rows, const KvCache& cache,
                     float* results);
  void FailInFlight(const std::string& reason);
  // Allows the adapters of the step to be replaced again.
  void EndUse(const Begun& begun);
  // Draws the tokens that the step asks for; copies the other rows of logits to the host.
  void FinishLogits(const StepInput& input, float* logits);
  // Number of logits in a row.
  int64_t NumLogits() const {
    return options_.drafter != nullptr ? options_.drafter->num_outputs : spec_.vocab_size;
  }
  // Returns the graphs that can replay this step; null if there are none.
  const StepGraphs::Size* GraphsFor(const StepInput& input, const KvCache& cache) const;

  ModelOptions options_;
  DecoderSpec spec_;  // spec of the whole model
  RankPlace place_;
  Parts parts_;
  void* pinned_logits_ = nullptr;
  std::array<Begun, DeviceStepInputs::kMostInFlight> begun_;  // a ring of reused entries
  size_t newest_ = 0;                                         // index of the step being enqueued
  size_t first_begun_ = 0;
  int num_in_flight_ = 0;
  StepGraphs graphs_;
  bool is_recording_ = false;
  int64_t num_replayed_ = 0;
};

}  // namespace sluice
