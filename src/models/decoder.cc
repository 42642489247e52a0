#include "models/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "kernels/linear.h"
#include "models/program/build_decoder.h"
#include "models/step_check.h"

namespace sluice {

DecoderModel::DecoderModel(ModelConfig config, const ModelOptions& options, const RankPlace& place,
                           const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights,
                           InputRounding rounding, DecoderAdapters adapters,
                           std::shared_ptr<const DecoderWeights> target,
                           std::unique_ptr<TensorRanks> ranks, CpuExecutor executor)
    : Model(std::move(config)),
      options_(options),
      place_(place),
      groups_(groups),
      weights_(std::move(weights)),
      rounding_(rounding),
      adapters_(std::move(adapters)),
      target_(std::move(target)),
      ranks_(std::move(ranks)),
      executor_(std::move(executor)),
      begun_(static_cast<size_t>(place.num_stages)) {
  if (place.num_stages == 1) return;
  const bool returns_all = options.handed.any();
  if (returns_all) {
    all_rows_.resize(static_cast<size_t>(options.max_rows));
    std::iota(all_rows_.begin(), all_rows_.end(), 0);
  }
  for (Begun& begun : begun_) {
    if (returns_all) begun.logit_rows.reserve(static_cast<size_t>(options.max_logit_rows));
    if (adapters_.step == nullptr) continue;
    begun.adapters.reserve(
        static_cast<size_t>(returns_all ? options.max_rows : options.max_logit_rows));
  }
}

Result<std::unique_ptr<DecoderModel>> DecoderModel::Create(
    ModelConfig config, const ModelOptions& options, const RankPlace& place,
    const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights, InputRounding rounding,
    const ThreadPool& pool, DecoderAdapters adapters,
    std::shared_ptr<const DecoderWeights> target) {
  DecoderSpec spec = config.spec;
  spec.FitRope(options.max_context);
  std::unique_ptr<TensorRanks> ranks;
  if (groups.stage != nullptr)
    ranks = std::make_unique<TensorRanks>(*groups.stage, spec, place, options.max_rows);
  ASSIGN_OR_RETURN(
      CpuExecutor executor,
      CpuExecutor::Create(program::BuildDecoder({.spec = spec,
                                                 .options = options,
                                                 .place = place,
                                                 .rounding = rounding,
                                                 .num_threads = pool.num_threads(),
                                                 .weights = *weights,
                                                 .target = target.get()}),
                          options, {.place = place, .all = groups.all, .ranks = ranks.get()}));
  return std::unique_ptr<DecoderModel>(new DecoderModel(
      std::move(config), options, place, groups, std::move(weights), rounding, std::move(adapters),
      std::move(target), std::move(ranks), std::move(executor)));
}

Result<std::unique_ptr<DecoderModel>> DecoderModel::ShareWith(const ThreadPool& pool,
                                                              const RankGroups& groups) const {
  DecoderAdapters adapters;
  if (adapters_.slots != nullptr) {
    adapters.slots = adapters_.slots;
    ASSIGN_OR_RETURN(LoraStep step, LoraStep::Allocate(adapters.slots, options_.max_rows));
    adapters.step = std::make_unique<LoraStep>(std::move(step));
  }
  return Create(config_, options_, place_, groups, weights_, rounding_, pool, std::move(adapters),
                target_);
}

void DecoderModel::PrepareThread(const ThreadPool& pool) {
  kernels::ReserveLinearScratch(pool, options_.max_rows, program::WidestInput(executor_.program()),
                                OrdersInputs(executor_.program()));
}

void DecoderModel::Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) {
  CheckStepInput(config_.spec, options_, input, cache);
  const bool is_staged = place_.num_stages > 1;
  CHECK_LT(num_begun_ - num_finished_, place_.num_stages);
  const int64_t index = num_begun_ % place_.num_stages;
  if (is_staged) ++num_begun_;
  Begun& begun = begun_[static_cast<size_t>(index)];
  if (is_staged) {
    begun.results = results;
    begun.rows = all_rows_.empty() ? std::ssize(input.logit_rows) : std::ssize(input.tokens);
    if (!all_rows_.empty() && place_.is_first_stage()) {
      begun.logit_rows.assign(input.logit_rows.begin(), input.logit_rows.end());
      begun.handed = input.handed;
    }
    begun.adapters.clear();
    // Waits until the next rank has received the message that an earlier step sent from this slot.
    groups_.all->AwaitPosted(NextRank(), place_.num_stages - 1);
  }
  for (const StateCopy& copy : input.state_copies) cache.states().Copy(copy.from, copy.to);
  for (const StateSlot& state : input.states) {
    if (state.is_new) cache.states().Clear(state.slot);
  }
  const CpuStep step{.pool = pool,
                     .input = input,
                     .cache = &cache,
                     .results = results,
                     .lora = input.adapters.empty() ? nullptr : adapters_.step.get(),
                     .copy = index};
  if (step.lora != nullptr) {
    step.lora->Begin(input.SlicesOf(0), input.adapters);
    if (is_staged && place_.is_first_stage()) {
      step.lora->AppendAdaptersOf(
          all_rows_.empty() ? input.logit_rows : std::span(all_rows_).first(input.tokens.size()),
          begun.adapters);
    }
  }
  const int64_t rows = executor_.RunBody(step);
  if (is_staged) return;
  if (rows > 0) executor_.MakeResults(rows, step);
  ++num_begun_;  // not incremented if the step throws, because the step then ends
}

void DecoderModel::Finish(ThreadPool& pool) {
  CHECK_LT(num_finished_, num_begun_);
  const int64_t index = num_finished_++ % place_.num_stages;
  if (place_.num_stages == 1 || !place_.is_first_stage()) return;
  const Begun& begun = begun_[static_cast<size_t>(index)];
  groups_.all->AwaitPosted(NextRank(), num_begun_ - num_finished_);
  StepInput input;
  input.logit_rows = begun.logit_rows;
  input.handed = begun.handed;
  CpuStep step{.pool = pool, .input = input, .results = begun.results, .copy = index};
  if (!begun.adapters.empty()) {
    step.lora = adapters_.step.get();
    step.lora->BeginRows(begun.adapters);
  }
  executor_.MakeResults(begun.rows, step);
}

}  // namespace sluice
