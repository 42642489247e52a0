// A step as bytes, for ranks that are other processes.
//
// Both sides keep the block tables that were sent: a table travels as the number of entries that
// are as before and the new ones, so that a sequence that decodes costs some bytes a step and not
// its whole table. A table has a number, which the encoder gives to the memory that the engine
// keeps it in; what is in it is compared, so that memory which is used again cannot mislead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/state_slots.h"
#include "models/model.h"

namespace sluice {

// What no step exceeds. Memory of encoder and decoder is allocated for it.
struct StepLimits {
  int64_t max_rows = 0;
  int64_t max_slices = 0;  // of a group
  int64_t max_context = 0;
  int64_t max_logit_rows = 0;
  int64_t block_size = 16;
  int64_t num_groups = 1;
  int64_t num_blocks = 0;
  int64_t vocab_size = 0;
  int64_t num_adapters = 0;  // slots of LoRA adapters
  int64_t num_states = 0;    // slots of states

  int64_t max_tables() const { return max_slices * num_groups; }
  int64_t max_blocks() const { return (max_context + block_size - 1) / block_size; }
  // The size of a message.
  int64_t max_bytes() const;
};

// The tables that one side keeps, each [max_blocks].
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

  // Valid until the next call. REQUIRES: within the limits; positions of a slice follow its
  // context; slices of all groups alike but for their tables; no draws.
  std::span<const std::byte> Encode(const StepInput& input);

 private:
  int64_t NumberOf(const int32_t* memory, int64_t guess);
  void PutTable(const kernels::AttentionSlice& slice, int64_t number);
  void PutStates(const StepInput& input);

  const StepLimits limits_;
  SentTables sent_;
  std::vector<const int32_t*> memory_;  // [tables], what each number stands for
  std::vector<int64_t> used_;           // [tables], the step that used it last
  int64_t step_ = 0;
  std::vector<std::byte> message_;
};

class StepDecoder {
 public:
  explicit StepDecoder(const StepLimits& limits);

  // kInvalidData, with the place, for bytes that no encoder of the same limits wrote; the tables
  // that were kept are then undefined. The step is valid until the next call.
  Result<const StepInput*> Decode(std::span<const std::byte> message);

 private:
  class NumberReader;
  Status TakeStates(NumberReader& reader, int64_t num_slices);

  const StepLimits limits_;
  SentTables sent_;
  std::vector<uint8_t> seen_;  // [tables], in this step
  std::vector<int32_t> tokens_, positions_, logit_rows_;
  std::vector<kernels::AttentionSlice> slices_;
  std::vector<int32_t> adapters_;
  std::vector<StateSlot> states_;
  std::vector<StateCopy> state_copies_;
  std::vector<StateSnapshot> state_snapshots_;
  StepInput input_;
};

}  // namespace sluice
