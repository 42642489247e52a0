// A model whose device is a clock: it computes nothing, and a step takes the time that StepClock
// predicts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/lora_store.h"
#include "models/model.h"
#include "simulation/step_clock.h"

namespace sluice {

struct SimulatedModelOptions {
  double speed = 1;         // steps take 1 / speed of the predicted time
  int64_t mean_output = 0;  // tokens after which answers end, on average; 0: never by themselves
  std::vector<int32_t> end_tokens;  // that end an answer
  LoraOptions lora = {};            // adapters are read and checked, not applied
  bool sleeps = true;               // false: steps take no time, for tests
};

// Tokens follow from a hash of the request's seed and the number of its tokens, or, if it is
// greedy, of the last token and its position: the same request gets the same tokens, whatever else
// runs. A constraint's mask, a list of allowed tokens and removed tokens are respected: among many
// allowed tokens, one with a small id is taken, and an end token as soon as a constraint allows it.
// Adapters change nothing. Rows whose token the sampler draws get logits that favour that token.
//
// A step ends at the time at which the device would be done. The time that the engine spends
// between two steps counts as part of the next one, as long as it is short: a real device works
// meanwhile, or the factors of its profile include it.
class SimulatedModel final : public Model {
 public:
  // Error: adapters that the model cannot have.
  static Result<std::unique_ptr<SimulatedModel>> Create(ModelConfig config, StepClock clock,
                                                        SimulatedModelOptions options);

  bool draws_tokens() const override { return true; }
  DrawLimits draw_limits() const override;
  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override;
  std::shared_ptr<LoraStore> lora() override { return lora_; }

  const StepClock& clock() const { return clock_; }
  double simulated_seconds() const { return simulated_seconds_; }  // of all steps

 private:
  using Clock = std::chrono::steady_clock;

  SimulatedModel(ModelConfig config, StepClock clock, SimulatedModelOptions options);
  int32_t Choose(const TokenDraw& draw, std::span<const uint32_t> words, uint64_t hash) const;
  void SetLogprobs(TokenDraw& draw) const;
  void FillLogits(uint64_t hash, float* logits) const;
  bool IsEnd(int32_t token) const;
  void WaitFor(double seconds);

  const StepClock clock_;
  const SimulatedModelOptions options_;
  std::shared_ptr<LoraStore> lora_;
  std::vector<SliceLoad> loads_;
  double simulated_seconds_ = 0;
  Clock::time_point done_{};  // of the last step
  int64_t num_late_ = 0;      // consecutive steps that could not begin in time
  bool told_late_ = false;
};

}  // namespace sluice
