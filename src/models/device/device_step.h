// The inputs of a step on a device: tokens, positions, slots of keys and values, the division of
// attention into work items, sampling parameters. All of it is laid out in one page-locked buffer
// and copied at once. Sampled tokens stay where the next step may take its own from them, and are
// copied back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/cuda/attention_plan.h"
#include "models/decoder_spec.h"
#include "models/device/device_step_view.h"
#include "models/model.h"
#include "models/shard.h"

namespace sluice {

// What steps have in common that are computed by the same launches: each has one token for each of
// up to `rows` sequences, and wants the logits of all. What is left of the rows is padded with rows
// that read the last sequence's cache, write nothing to it, and whose results nobody takes.
struct PaddedStep {
  int64_t rows = 0;
  int level = 0;  // of how far attention is split (attention_plan.h)

  bool operator==(const PaddedStep&) const = default;
};

// Ownership: owns the host's buffers, one for each step in flight; the device's is the caller's and
// outlives it; move-only.
class DeviceStepInputs final : public DeviceStepView {
 public:
  // Steps that may have been sent and not been passed by the stream.
  static constexpr int kMostInFlight = 2;

  // Bytes of the largest step within the options, on the device and of each of the host's buffers.
  // Here and below: `share` is what the rank at `place` computes (ShareOf).
  static int64_t MaxBytes(const DecoderSpec& share, const ModelOptions& options, int64_t num_groups,
                          const RankPlace& place = {});
  // What draws may ask for, whose room is part of MaxBytes. Words are those of a step in which
  // every row has its masks and lists as long as the longest sequence's, up to kMostDrawWords or
  // one row.
  static constexpr int64_t kMostDrawWords = int64_t{1} << 20;
  static DrawLimits DrawLimitsOf(const DecoderSpec& spec, const ModelOptions& options);
  // The memory of attention's partial results, for any layer.
  static int64_t PartialsBytes(const DecoderSpec& share, const ModelOptions& options);

  // `memory`: MaxBytes on the device, aligned to 256.
  static Result<DeviceStepInputs> Create(Device& device, const DecoderSpec& share,
                                         const ModelOptions& options, int64_t num_groups,
                                         std::byte* memory, const RankPlace& place = {});

  // Lays out the step and enqueues its copy, and that of the tokens which it takes from the draws
  // of the step before. The stream must have passed what was enqueued for the step kMostInFlight
  // before. Allocates nothing.
  //
  // With `padded`, whose rows are at most what the options allow of rows, slices and rows of
  // logits, every address and number below but those of draws depends on `padded` alone. A step
  // whose attention is split further than at the level of `padded` raises it.
  void Send(DeviceStream& stream, const StepInput& input, PaddedStep* padded = nullptr);
  // Levels of PaddedStep there are for so many rows; single tokens have as many with any heads.
  static int NumLevels(const DecoderSpec& share, const ModelOptions& options, int64_t rows);
  int NumLevels(int64_t rows) const {
    return device::NumSplitLevels(plans_.front().kind.limits, rows);
  }

  // Inputs of the step that was sent last, on the device.
  // Its tokens, counted from the first word of this rank: if ranks share the vocabulary, those that
  // this one has. And for each row of the step, which of all ranks' embeddings is its own, those of
  // one rank after those of the ranks before; embeddings() returns how many each rank has.
  const int32_t* tokens() const override { return OnDevice<int32_t>(tokens_); }
  const int32_t* embedding_places() const override { return OnDevice<int32_t>(embedding_places_); }
  std::span<const int64_t> embeddings() const override { return embeddings_; }
  const int32_t* positions() const override { return OnDevice<int32_t>(positions_); }
  const int32_t* logit_rows() const override { return OnDevice<int32_t>(logit_rows_); }
  const int64_t* slots(int64_t group) const override {
    return OnDevice<int64_t>(slots_) + group * num_rows_;
  }
  // The rows that have adapters, or of the rows whose logits are wanted those that have, by their
  // places among these: AddLoraArgs::tiles, rows, num_tiles and slots are set. Tokens: as they are
  // in the vocabulary of all ranks. REQUIRES: the step has adapters.
  device::AddLoraArgs Adapters(bool of_logit_rows) const override;
  const int32_t* all_tokens() const override { return OnDevice<int32_t>(all_tokens_); }
  bool has_adapters() const override { return has_adapters_; }
  // How each row's token is drawn, and where it goes. REQUIRES: the step has draws.
  device::SampleRowsArgs Draws() const;
  // Enqueues the copy of what was drawn; once the stream has passed that, ReadDraws takes it, whose
  // `buffer` is what that step's was.
  void ReceiveDraws(DeviceStream& stream);
  int buffer() const { return buffer_; }
  void ReadDraws(int buffer, std::span<TokenDraw> draws) const;

  // The items, slices and tables of layers with this span and these heads in this group of the
  // cache; the rest is left to the caller.
  device::AttentionArgs Attention(const program::Attend& op, const AttentionSpec& attention,
                                  int64_t group) const override;

 private:
  // What layers have in common whose attention is divided in one way.
  struct AttentionKind {
    AttentionSpan span;
    device::AttentionLimits limits;  // the largest problem within the options

    static AttentionKind Of(const AttentionSpec& attention, const ModelOptions& options);
    bool IsOf(const AttentionSpec& attention) const;
  };
  // The work items of such layers.
  struct KindPlan {
    AttentionKind kind;
    device::AttentionPlan plan;
    int64_t items = 0, merges = 0;  // offsets
  };

  DeviceStepInputs() = default;
  static std::vector<AttentionKind> KindsOf(const DecoderSpec& share, const ModelOptions& options);
  template <typename T>
  const T* OnDevice(int64_t offset) const {
    return reinterpret_cast<const T*>(device_memory_ + offset);
  }
  std::byte* OnHost() const { return OnHost(buffer_); }
  std::byte* OnHost(int buffer) const {
    return host_.As<std::byte>() + buffer * host_.size_bytes() / kMostInFlight;
  }
  // The next `count` elements of the host's buffer, and where they begin.
  template <typename T>
  std::span<T> Take(int64_t count, int64_t& offset);
  void WriteTokens(std::span<const int32_t> tokens);
  // Enqueues the copies of the tokens that the step before drew.
  void TakeDrawn(DeviceStream& stream, std::span<const int32_t> tokens) const;
  void WriteSlices(const StepInput& input);
  void WritePlans(PaddedStep* padded);
  void WriteTables(const StepInput& input);
  void WriteAdapters(const StepInput& input);
  void WriteDraws(std::span<const TokenDraw> draws, std::span<const uint32_t> words);

  // Where the slots of rows are, and the rows by slot (kernels/cuda/device_kernels.h, AddLoraArgs).
  struct AdapterRows {
    int64_t slots = 0, rows = 0, tiles = 0;  // offsets
    int64_t num_tiles = 0;
  };
  // `slots` is of the rows. Room in `begin_of_slot_` is used.
  void WriteAdapterRows(std::span<const int32_t> slots, AdapterRows& to);

  int block_size_ = 0;
  RankPlace place_;
  std::vector<RowRange> words_;      // by rank that shares the vocabulary
  std::vector<int64_t> embeddings_;  // by rank, of the step
  std::vector<KindPlan> plans_;
  DeviceBuffer host_;
  int buffer_ = 0;  // of the step that was sent last
  std::byte* device_memory_ = nullptr;
  int64_t begin_ = 0;  // of what is sent; before it is what was drawn
  int64_t end_ = 0;
  int64_t num_rows_ = 0;       // with those that pad it, as num_slices_
  int64_t num_slices_ = 0;     // of one group
  int64_t num_padding_ = 0;    // of the rows and of the slices
  int64_t table_entries_ = 0;  // of one group
  int64_t tokens_ = 0, embedding_places_ = 0, positions_ = 0, logit_rows_ = 0, slots_ = 0,
          slices_ = 0, tables_ = 0;
  bool has_adapters_ = false;
  int num_slots_ = 0;                   // of adapters
  std::vector<int32_t> row_slots_;      // of the step's rows, then of its logit rows
  std::vector<int32_t> begin_of_slot_;  // [slots + 1]
  AdapterRows adapters_, logit_adapters_;
  int64_t all_tokens_ = 0;
  int64_t num_draws_ = 0, settings_ = 0, extras_ = 0, draw_words_ = 0;
  bool has_extras_ = false, tells_logprobs_ = false;
  int64_t most_top_ = 0;  // of the rows of the step
  // What comes back.
  int64_t drawn_tokens_ = 0, drawn_errors_ = 0, drawn_logprobs_ = 0, drawn_tops_ = 0;
};

}  // namespace sluice
