// Fuzz target: decodes arbitrary bytes as step messages. Accepted steps are within the limits, and
// equal after encoding and decoding again.
#include <algorithm>

#include "base/fuzz_input.h"
#include "models/step_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT: a program of one file
  const StepLimits limits{.max_rows = 64,
                          .max_slices = 4,
                          .max_context = 128,
                          .max_logit_rows = 16,
                          .block_size = 4,
                          .num_groups = 2,
                          .num_blocks = 50,
                          .vocab_size = 1000,
                          .num_adapters = 3,
                          .num_states = 6,
                          .image_rows = 5,
                          .image_row_width = 2,
                          .num_axes = 3};
  StepDecoder decoder(limits);
  StepEncoder encoder(limits);
  StepDecoder second(limits);
  const std::string_view text = fuzz::Text(data, size);
  // The input is a sequence of messages, each preceded by its length.
  for (size_t place = 0; place < text.size();) {
    const size_t length = std::min<size_t>(data[place], size - place - 1);
    const auto message = std::as_bytes(std::span(data, size)).subspan(place + 1, length);
    place += 1 + length;
    const auto step = decoder.Decode(message);
    if (!step) return 0;
    const StepInput& input = **step;
    for (const int32_t slot : input.adapters)
      fuzz::Require(slot >= -1 && slot < limits.num_adapters);
    for (const StateSlot& state : input.states)
      fuzz::Require(state.slot >= 0 && state.slot < limits.num_states);
    for (const StateCopy& copy : input.state_copies) {
      fuzz::Require(copy.from >= 0 && copy.from < limits.num_states && copy.to >= 0 &&
                    copy.to < limits.num_states);
    }
    for (const StateSnapshot& snapshot : input.state_snapshots) {
      fuzz::Require(
          snapshot.slot >= 0 && snapshot.slot < limits.num_states && snapshot.slice >= 0 &&
          snapshot.slice < std::ssize(input.SlicesOf(0)) && snapshot.rows > 0 &&
          snapshot.rows <= input.SlicesOf(0)[static_cast<size_t>(snapshot.slice)].num_tokens);
    }
    int32_t last = -1;
    for (const ImageRow& image : input.image_rows) {
      fuzz::Require(image.row > last && image.row < std::ssize(input.tokens) && image.place >= 0 &&
                    image.place < limits.image_rows);
      last = image.row;
    }
    for (const StoredImageRow& stored : input.stored_image_rows)
      fuzz::Require(stored.place >= 0 && stored.place < limits.image_rows);
    for (const int32_t position : input.rope_positions)
      fuzz::Require(position >= 0 && position < limits.max_context);
    for (const kernels::AttentionSlice& slice : input.slices) {
      for (int32_t i = 0; i < slice.num_spans; ++i) {
        const kernels::SeenSpan& span = slice.spans[i];
        fuzz::Require(span.begin >= 0 && span.end > slice.context &&
                      span.begin < slice.context + slice.num_tokens &&
                      span.end <= slice.context + slice.num_tokens);
      }
    }
    for (const int32_t position : input.positions)
      fuzz::Require(position >= 0 && position < limits.max_context);
    for (const kernels::AttentionSlice& slice : input.slices) {
      const int64_t blocks = (slice.context + slice.num_tokens + 3) / 4;
      for (int64_t i = 0; i < blocks; ++i)
        fuzz::Require(slice.block_table[i] >= -1 && slice.block_table[i] < limits.num_blocks);
    }
    const auto again = second.Decode(encoder.Encode(input));
    fuzz::Require(again.has_value() && std::ranges::equal((*again)->tokens, input.tokens) &&
                  std::ranges::equal((*again)->positions, input.positions) &&
                  std::ranges::equal((*again)->logit_rows, input.logit_rows) &&
                  std::ranges::equal((*again)->adapters, input.adapters) &&
                  std::ranges::equal((*again)->rope_positions, input.rope_positions) &&
                  (*again)->image_rows.size() == input.image_rows.size() &&
                  (*again)->stored_image_rows.size() == input.stored_image_rows.size());
  }
  return 0;
}
