// Encodes a step as bytes, for ranks in other processes.
//
// Both sides keep the block tables sent so far. A table is sent as the number of unchanged leading
// entries, followed by the new entries. So a decoding sequence costs a few bytes per step instead
// of its whole table. The encoder assigns table numbers to the addresses of the engine's tables; it
// compares contents, so reused memory is safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/state_slots.h"
#include "models/model.h"

namespace sluice {

// Limits of a step. Encoder and decoder allocate memory for them.
struct StepLimits {
  int64_t max_rows = 0;
  int64_t max_slices = 0;  // maximum number of slices of a group
  int64_t max_context = 0;
  int64_t max_logit_rows = 0;
  int64_t block_size = 16;
  int64_t num_groups = 1;
  int64_t num_blocks = 0;
  int64_t vocab_size = 0;
  int64_t num_adapters = 0;  // number of slots for LoRA adapters
  int64_t num_states = 0;    // number of slots for states
  // Number of slots for image rows (StepInput::stored_image_rows; 0: none), number of elements per
  // row, and number of axes of StepInput::rope_positions.
  int64_t image_rows = 0;
  int64_t image_row_width = 0;
  int64_t num_axes = 0;

  int64_t max_tables() const { return max_slices * num_groups; }
  int64_t max_blocks() const { return (max_context + block_size - 1) / block_size; }
  // Maximum size of a message in bytes.
  int64_t max_bytes() const;
};

// The block tables that one side of the connection keeps, [max_blocks] each.
class SentTables {
 public:
  explicit SentTables(const StepLimits& limits);

  std::span<int32_t> table(int64_t number) {
    return std::span(entries_).subspan(static_cast<size_t>(number * max_blocks_),
                                       static_cast<size_t>(max_blocks_));
  }
  int64_t& size(int64_t number) { return sizes_[static_cast<size_t>(number)]; }

 private:
  int64_t max_blocks_;
  std::vector<int32_t> entries_;
  std::vector<int64_t> sizes_;
};

class StepEncoder {
 public:
  explicit StepEncoder(const StepLimits& limits);

  // Valid until the next call. REQUIRES: within the limits; a slice's positions follow its context;
  // the slices of all groups are equal except for their tables; no draws.
  std::span<const std::byte> Encode(const StepInput& input);

 private:
  int64_t NumberOf(const int32_t* memory, int64_t guess);
  void PutTable(const kernels::AttentionSlice& slice, int64_t number);
  void PutStates(const StepInput& input);
  void PutImages(const StepInput& input);

  const StepLimits limits_;
  SentTables sent_;
  std::vector<const int32_t*> memory_;  // [tables]: the address of each table, by number
  std::vector<int64_t> used_;           // [tables]: the step that last used each table
  int64_t step_ = 0;
  std::vector<std::byte> message_;
};

class StepDecoder {
 public:
  explicit StepDecoder(const StepLimits& limits);

  // kInvalidData, with the position in the message, if the bytes were not written by an encoder
  // with these limits; the kept tables are then undefined. The step is valid until the next call.
  Result<const StepInput*> Decode(std::span<const std::byte> message);

 private:
  class NumberReader;
  Status TakeStates(NumberReader& reader, int64_t num_slices);
  // Copies the stored image rows to their slots. The step's rows then point to these slots.
  Status TakeImages(NumberReader& reader, int64_t num_rows);
  Status TakeSpans(NumberReader& reader);

  const StepLimits limits_;
  SentTables sent_;
  std::vector<uint8_t> seen_;  // [tables]: whether the table occurred in this step
  std::vector<int32_t> tokens_, positions_, logit_rows_;
  std::vector<kernels::AttentionSlice> slices_;
  std::vector<int32_t> adapters_;
  std::vector<StateSlot> states_;
  std::vector<StateCopy> state_copies_;
  std::vector<StateSnapshot> state_snapshots_;
  std::vector<float> image_values_;  // [image_rows, image_row_width]
  std::vector<StoredImageRow> stored_image_rows_;
  std::vector<ImageRow> image_rows_;
  std::vector<int32_t> rope_positions_;
  std::vector<kernels::SeenSpan> spans_;
  StepInput input_;
};

}  // namespace sluice
