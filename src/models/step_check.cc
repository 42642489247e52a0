#include "models/step_check.h"

#include "base/check.h"

namespace sluice {
namespace {

void CheckStates(const DecoderSpec& spec, const StepInput& input, const KvCache& cache) {
  if (!spec.KeepsStates()) {
    CHECK(input.states.empty() && input.state_copies.empty() && input.state_snapshots.empty(),
          "the model keeps no states");
    return;
  }
  const std::span<const kernels::AttentionSlice> slices = input.SlicesOf(0);
  const int64_t num_slots = cache.states().num_slots();
  const auto check_slot = [&](int32_t slot) {
    CHECK(slot >= 0 && slot < num_slots, "slot {} of {} states", slot, num_slots);
  };
  CHECK_EQ(input.states.size(), slices.size());
  // No slot is the target of two copies, so there are at most num_slots copies. The same applies to
  // snapshots.
  CHECK_LE(std::ssize(input.state_copies), num_slots);
  CHECK_LE(std::ssize(input.state_snapshots), num_slots);
  for (size_t i = 0; i < slices.size(); ++i) {
    check_slot(input.states[i].slot);
    CHECK(!input.states[i].is_new || slices[i].context == 0, "a new state after {} tokens",
          slices[i].context);
  }
  for (const StateCopy& copy : input.state_copies) {
    check_slot(copy.from);
    check_slot(copy.to);
  }
  for (const StateSnapshot& snapshot : input.state_snapshots) {
    check_slot(snapshot.slot);
    CHECK(snapshot.slice >= 0 && snapshot.slice < std::ssize(slices), "slice {} of {}",
          snapshot.slice, slices.size());
    const int32_t rows = slices[static_cast<size_t>(snapshot.slice)].num_tokens;
    CHECK(snapshot.rows > 0 && snapshot.rows <= rows, "a snapshot after {} of {} rows",
          snapshot.rows, rows);
  }
}

}  // namespace

void CheckStepInput(const DecoderSpec& spec, const ModelOptions& options, const StepInput& input,
                    const KvCache& cache, bool takes_drawn_tokens) {
  const auto rows = static_cast<int64_t>(input.tokens.size());
  CHECK_LE(rows, options.max_rows);
  CHECK_EQ(input.positions.size(), input.tokens.size());
  CHECK_EQ(input.num_groups, cache.num_groups());
  CHECK_EQ(static_cast<int64_t>(input.slices.size()) % input.num_groups, 0);
  CHECK_LE(static_cast<int64_t>(input.SlicesOf(0).size()), options.max_slices);
  CHECK_LE(static_cast<int64_t>(input.logit_rows.size()), options.max_logit_rows);
  CHECK(cache.layer(0).layout.type == options.kv_type &&
            cache.layer(0).layout.block_size == options.block_size,
        "the KV cache was allocated with other options than the model");
  int64_t next_row = 0;
  for (const kernels::AttentionSlice& slice : input.SlicesOf(0)) {
    CHECK_EQ(slice.first_row, next_row);
    next_row += slice.num_tokens;
    CHECK_LE(int64_t{slice.context} + slice.num_tokens, options.max_context);
  }
  CHECK_EQ(next_row, rows);
  CheckStates(spec, input, cache);
  if (options.drafter != nullptr && input.hidden_memory.rows != nullptr) {
    CHECK_EQ(std::ssize(input.hidden_rows), rows);
  } else if (options.drafter != nullptr) {
    const int64_t width = input.takes_target                 ? options.drafter->target_width()
                          : options.drafter->drafts_blocks() ? 0
                                                             : spec.hidden_size;
    CHECK_EQ(std::ssize(input.hidden), rows * width);
  }
  // A negative token stands for a token that the previous step draws.
  const int64_t least = takes_drawn_tokens ? -options.max_logit_rows : 0;
  for (const int32_t token : input.tokens)
    CHECK(token >= least && token < spec.vocab_size, "token {}", token);
  int32_t last = -1;
  for (const int32_t row : input.logit_rows) {
    CHECK(row > last && row < rows, "logit row {} after {} of {} rows", row, last, rows);
    last = row;
  }
  const auto words = static_cast<int64_t>(input.draw_words.size());
  const int64_t mask = (spec.vocab_size + 31) / 32;
  for (const TokenDraw& draw : input.draws) {
    const kernels::DrawExtras& extras = draw.extras;
    CHECK(extras.mask < 0 || extras.mask + mask <= words, "a mask beyond the step's words");
    CHECK(extras.draw_mask < 0 || extras.draw_mask + mask <= words,
          "a mask beyond the step's words");
    CHECK(int64_t{extras.biases} + 2 * int64_t{extras.num_biases} <= words &&
              int64_t{extras.counts} + 2 * int64_t{extras.num_counts} <= words,
          "a list beyond the step's words");
    CHECK(extras.num_top >= 0 && extras.num_top <= kernels::kMostTopLogits &&
              std::ssize(draw.top) >= extras.num_top,
          "{} logits are wanted, with room for {}", extras.num_top, draw.top.size());
  }
}

}  // namespace sluice
