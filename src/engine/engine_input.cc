// Fills the arrays that a step of EngineCore reads: tokens, positions, slices, rows with results,
// draws.
#include <algorithm>

#include "engine/adapters.h"
#include "engine/engine_core.h"

namespace sluice {

StepInput EngineCore::BuildInput(const StepPlan& plan, Flight& flight) {
  tokens_.clear();
  positions_.clear();
  slices_.clear();
  second_texts_.clear();
  flight.slices.clear();
  flight.logit_rows.clear();
  for (const PlannedSlice& slice : plan.slices) {
    const ScheduledSequence& sequence = *slice.sequence;
    const int64_t first_row = static_cast<int64_t>(tokens_.size());
    slices_.push_back({first_row, static_cast<int32_t>(slice.num_tokens),
                       static_cast<int32_t>(slice.first), sequence.blocks[0].data()});
    const ActiveRequest& active = *static_cast<const ActiveSequence&>(sequence).request;
    slices_.back().spans = active.spans.data();
    slices_.back().num_spans = static_cast<int32_t>(active.spans.size());
    if (plan_.pooling && plan_.pooling->num_token_types > 1) {
      const Request& request = static_cast<const ActiveSequence&>(sequence).request->request;
      const auto length = static_cast<int32_t>(sequence.tokens.size());
      second_texts_.push_back(request.second_text.value_or(length));
    }
    AppendTokens(slice);
    FlyingSlice& flying = flight.slices.emplace_back();
    static_cast<PlannedSlice&>(flying) = slice;
    flying.first_logit = std::ssize(flight.logit_rows);
    const auto [begin_row, end_row] = WantedRows(slice, first_row);
    for (int64_t row = begin_row; row < end_row; ++row)
      flight.logit_rows.push_back(static_cast<int32_t>(row));
  }
  const auto num_groups = static_cast<int64_t>(plan_.scheduler.groups.size());
  for (int64_t group = 1; group < num_groups; ++group) {
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      kernels::AttentionSlice slice = slices_[i];
      slice.block_table = plan.slices[i].sequence->blocks[group].data();
      slices_.push_back(slice);
    }
  }
  const std::span<TokenDraw> draws = PlanDraws(flight);
  const auto words = draws.empty() ? std::span<const uint32_t>() : draw_planner_.words();
  StepInput input;
  input.tokens = tokens_;
  input.positions = positions_;
  input.slices = slices_;
  input.logit_rows = flight.logit_rows;
  input.num_groups = num_groups;
  input.draws = draws;
  input.draw_words = words;
  input.second_texts = second_texts_;
  input.adapters = AdaptersOf(plan);
  input.maxima = flight.maxima;
  if (handed_.size_bytes() > 0) input.handed = HandedOf(flight);
  if (states_ != nullptr) AddStates(plan, input);
  AddImages(plan, input);
  return input;
}

void EngineCore::AddStates(const StepPlan& plan, StepInput& input) {
  state_slots_.clear();
  for (const PlannedSlice& slice : plan.slices)
    state_slots_.push_back({.slot = slice.state, .is_new = slice.first == 0});
  input.states = state_slots_;
  input.state_copies = plan.state_copies;
  input.state_snapshots = plan.snapshots;
}

void EngineCore::AppendTokens(const PlannedSlice& slice) {
  const auto& sequence = static_cast<const ActiveSequence&>(*slice.sequence);
  const int64_t end = slice.first + slice.num_tokens - slice.num_proposed;
  const int64_t known = std::min(end, std::ssize(sequence.tokens));
  tokens_.insert(tokens_.end(), sequence.tokens.begin() + slice.first,
                 sequence.tokens.begin() + known);
  if (known < end) tokens_.push_back(-1 - sequence.last_draw);
  tokens_.insert(tokens_.end(), sequence.proposed.begin(),
                 sequence.proposed.begin() + slice.num_proposed);
  for (int64_t i = 0; i < slice.num_tokens; ++i)
    positions_.push_back(static_cast<int32_t>(slice.first + i));
}

std::span<const int32_t> EngineCore::AdaptersOf(const StepPlan& plan) {
  adapters_.clear();
  if (model_->lora() == nullptr) return {};
  bool any = false;
  for (const PlannedSlice& slice : plan.slices) {
    const Request& request = static_cast<const ActiveSequence*>(slice.sequence)->request->request;
    adapters_.push_back(request.adapter == nullptr ? -1 : request.adapter->slot());
    any = any || request.adapter != nullptr;
  }
  return any ? std::span<const int32_t>(adapters_) : std::span<const int32_t>();
}

std::pair<int64_t, int64_t> EngineCore::WantedRows(const PlannedSlice& slice,
                                                   int64_t first_row) const {
  const int64_t end_row = first_row + slice.num_tokens;
  if (slice.all_rows) return {first_row, end_row};
  if (plan_.pooling && plan_.pooling->method == PoolingMethod::kCls)
    return {first_row, first_row + (slice.first == 0 ? 1 : 0)};
  return {slice.samples ? end_row - 1 - slice.num_proposed : end_row, end_row};
}

std::span<TokenDraw> EngineCore::PlanDraws(Flight& flight) {
  flight.draws.clear();
  if (!model_->draws_tokens()) return {};
  draw_jobs_.clear();
  for (const FlyingSlice& slice : flight.slices) {
    // With draft tokens, the draw of a later row depends on this row's token, which is not known
    // yet.
    if (!slice.samples || slice.all_rows || slice.num_proposed > 0) continue;
    ActiveSequence& sequence = slice.active();
    draw_jobs_.push_back({.sequence = &sequence.sampling,
                          .history = {sequence.tokens, sequence.num_prompt_tokens},
                          .num_output_tokens = sequence.length() - sequence.num_prompt_tokens,
                          .row = slice.first_logit});
  }
  draw_planner_.Plan(pool_, draw_jobs_);
  for (const DrawJob& job : draw_jobs_) {
    if (!job.is_possible) continue;
    flight.draws.resize(flight.logit_rows.size());
    const auto row = static_cast<size_t>(job.row);
    flight.draws[row] = {.is_wanted = true,
                         .settings = job.settings,
                         .extras = job.extras,
                         .top = std::span(flight.tops)
                                    .subspan(row * static_cast<size_t>(draw_limits_.top),
                                             static_cast<size_t>(job.extras.num_top))};
  }
  return flight.draws;
}

}  // namespace sluice
