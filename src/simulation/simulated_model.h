// A model that computes nothing: each step takes the time that StepClock predicts.
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
  double speed = 1;  // steps take 1 / speed of the predicted time
  // Mean number of tokens after which answers end; 0: answers end only at their limits.
  int64_t mean_output = 0;
  std::vector<int32_t> end_tokens;  // tokens that end an answer
  LoraOptions lora = {};            // adapters are read and checked, not applied
  bool sleeps = true;               // whether steps take time; tests set false
};

// Tokens are derived from a hash of the request's seed and its number of tokens. For a greedy
// request, the hash is over the last token and its position. So the same request gets the same
// tokens whatever else runs. Constraint masks, lists of allowed tokens and removed tokens are
// respected. If many tokens are allowed, one with a small id is chosen; an end token is chosen as
// soon as a constraint allows it. Adapters have no effect. For rows whose token the sampler draws,
// the logits favour the hashed token.
//
// A step returns when the simulated device would be done. The time that the engine spends between
// two steps counts towards the next one if it is short: a real device would be busy meanwhile, or
// its factors include that time.
class SimulatedModel final : public Model {
 public:
  // Returns an error if the model does not support these adapters.
  static Result<std::unique_ptr<SimulatedModel>> Create(ModelConfig config, StepClock clock,
                                                        SimulatedModelOptions options);

  bool draws_tokens() const override { return true; }
  DrawLimits draw_limits() const override;
  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override;
  std::shared_ptr<LoraStore> lora() override { return lora_; }

  const StepClock& clock() const { return clock_; }
  double simulated_seconds() const { return simulated_seconds_; }  // sum over all steps

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
  Clock::time_point done_{};  // end of the last step
  int64_t num_late_ = 0;      // number of consecutive steps that could not begin in time
  bool told_late_ = false;
};

}  // namespace sluice
