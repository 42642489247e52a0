// The inputs of a step on a device: tokens, positions, slots of keys and values, attention's work
// items, sampling parameters. They are laid out in one page-locked buffer and copied in a single
// transfer. Sampled tokens stay on the device for the next step, and are copied back.
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

// Describes steps with identical launches: each has one token for each of at most `rows` sequences,
// and returns the logits of all rows. The remaining rows are padding: they read the last sequence's
// cache, do not write to it, and their results are ignored.
struct PaddedStep {
  int64_t rows = 0;
  int level = 0;  // how finely attention is split (attention_plan.h)

  bool operator==(const PaddedStep&) const = default;
};

// Ownership: owns the host buffers, one for each step in flight; the device buffer belongs to the
// caller and outlives it; move-only.
class DeviceStepInputs final : public DeviceStepView {
 public:
  // Maximum number of steps that were sent but that the stream has not completed.
  static constexpr int kMostInFlight = 2;

  // Returns the bytes of the largest step that the options allow, for the device and for each host
  // buffer. In this class, `share` is the share of the rank at `place` (ShareOf).
  static int64_t MaxBytes(const DecoderSpec& share, const ModelOptions& options, int64_t num_groups,
                          const RankPlace& place = {});
  // Limits of draws; MaxBytes includes room for them. The number of words suffices for a step in
  // which every row has the masks and lists of the longest sequence. It is limited to
  // kMostDrawWords, but suffices for at least one row.
  static constexpr int64_t kMostDrawWords = int64_t{1} << 20;
  static DrawLimits DrawLimitsOf(const DecoderSpec& spec, const ModelOptions& options);
  // Bytes of attention's partial results, for any layer.
  static int64_t PartialsBytes(const DecoderSpec& share, const ModelOptions& options);

  // `memory`: MaxBytes on the device, aligned to 256.
  static Result<DeviceStepInputs> Create(Device& device, const DecoderSpec& share,
                                         const ModelOptions& options, int64_t num_groups,
                                         std::byte* memory, const RankPlace& place = {});

  // Lays out the step and enqueues its copy, and the copy of the tokens that it takes from the
  // previous step's draws. The stream must have completed the step sent kMostInFlight steps before.
  // Allocates nothing.
  //
  // With `padded` (its rows at most the options' limits of rows, slices and logit rows), all
  // addresses and numbers below except those of draws depend only on `padded`. If attention is
  // split further than `padded.level`, raises the level.
  void Send(DeviceStream& stream, const StepInput& input, PaddedStep* padded = nullptr);
  // Number of levels of PaddedStep for `rows` rows. For slices of single tokens it does not depend
  // on the heads.
  static int NumLevels(const DecoderSpec& share, const ModelOptions& options, int64_t rows);
  int NumLevels(int64_t rows) const {
    return device::NumSplitLevels(plans_.front().kind.limits, rows);
  }

  // These functions return inputs of the last step that was sent, on the device. tokens(): relative
  // to the first token of this rank's vocabulary; if ranks share the vocabulary, only tokens of
  // this rank. embedding_places(): for each row of the step, the index of its embedding among all
  // ranks' embeddings, in rank order. embeddings(): number of embeddings of each rank.
  // own_token_rows(): for each of num_own_tokens() tokens of this rank, its row of the step; -1 for
  // further tokens, which only padded steps have.
  const int32_t* tokens() const override { return OnDevice<int32_t>(tokens_); }
  const int32_t* embedding_places() const override { return OnDevice<int32_t>(embedding_places_); }
  std::span<const int64_t> embeddings() const override { return embeddings_; }
  int64_t num_own_tokens() const override { return num_own_tokens_; }
  const int32_t* own_token_rows() const override { return OnDevice<int32_t>(own_token_rows_); }
  const int32_t* positions() const override { return OnDevice<int32_t>(positions_); }
  const int32_t* logit_rows() const override { return OnDevice<int32_t>(logit_rows_); }
  const int64_t* slots(int64_t group) const override {
    return OnDevice<int64_t>(slots_) + group * num_rows_;
  }
  device::StateSlices states() const override {
    return {.slices = OnDevice<device::StateSlice>(states_),
            .num_slices = static_cast<int>(num_slices_),
            .kept = OnDevice<device::StateKept>(kept_)};
  }
  DeviceIndexRows index_rows() const override {
    return {OnDevice<device::IndexRow>(index_rows_), OnDevice<int32_t>(tables_), max_context_};
  }
  // Inputs of models with images. rope_positions(): [axes, rows], for models with rope_axes; null:
  // the step has none.
  const int32_t* rope_positions() const override {
    return num_axes_ > 0 ? OnDevice<int32_t>(rope_positions_) : nullptr;
  }
  DeviceImageRows image_rows() const override {
    return {.rows = OnDevice<int32_t>(image_rows_),
            .places = OnDevice<int32_t>(image_places_),
            .count = num_image_rows_};
  }
  const int32_t* hidden_rows() const override { return OnDevice<int32_t>(hidden_rows_); }
  // Whether steps padded to `padded` rows have room for this number of state snapshots.
  static bool HasRoomForSnapshots(const PaddedStep& padded, size_t count) {
    return static_cast<int64_t>(count) <= padded.rows;
  }
  // The rows with adapters: among all rows of the step or, if `of_logit_rows`, among its logit
  // rows. Indices count the rows of that set. Sets AddLoraArgs::tiles, rows, num_tiles and slots.
  // all_tokens(): tokens in the vocabulary of all ranks. REQUIRES: the step has adapters.
  device::AddLoraArgs Adapters(bool of_logit_rows) const override;
  const int32_t* all_tokens() const override { return OnDevice<int32_t>(all_tokens_); }
  bool has_adapters() const override { return has_adapters_; }
  // Sampling parameters of each row, and the address to which its token is written. REQUIRES: the
  // step has draws.
  device::SampleRowsArgs Draws() const;
  // Enqueues the copy of the draws to the host. After the stream has completed the copy, ReadDraws
  // returns the draws. `buffer`: the value of buffer() for that step.
  void ReceiveDraws(DeviceStream& stream);
  int buffer() const { return buffer_; }
  void ReadDraws(int buffer, std::span<TokenDraw> draws) const;

  // Sets the items, slices and tables for layers with this span and these heads in this group of
  // the cache. The caller sets the other members.
  device::AttentionArgs Attention(const program::Attend& op, const AttentionSpec& attention,
                                  int64_t group) const override;

 private:
  // Attention layers with the same span and heads, for which the same work items are used.
  struct AttentionKind {
    AttentionSpan span;
    bool sees_images = false;
    // If not 0, each row attends to at most this number of chosen positions, and has separate
    // slices and items. 0: each row attends to all positions of its span.
    int32_t top_k = 0;
    device::AttentionLimits limits;  // the largest attention problem that the options allow

    static AttentionKind Of(const AttentionSpec& attention, const ModelOptions& options);
    bool IsOf(const AttentionSpec& attention) const;
  };
  // The work items for the layers of one AttentionKind.
  struct KindPlan {
    AttentionKind kind;
    device::AttentionPlan plan;
    int64_t items = 0, merges = 0;  // offsets
    int64_t slices = 0;             // offset of the slices of the rows; only with top_k
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
  // Reserves the next `count` elements of the host buffer. `offset`: receives their position.
  template <typename T>
  std::span<T> Take(int64_t count, int64_t& offset);
  void WriteTokens(std::span<const int32_t> tokens, bool is_padded);
  // Enqueues copies of the tokens that the previous step drew.
  void TakeDrawn(DeviceStream& stream, std::span<const int32_t> tokens) const;
  void WriteSlices(const StepInput& input);
  // Writes the last position to which each row attends, if tokens of an image attend to each other.
  void WriteSeen(const StepInput& input);
  // Writes the rows for which indexers choose, and their slices of chosen positions.
  void WriteIndexRows();
  void WritePlans(PaddedStep* padded);
  void WriteRopePositions(const StepInput& input);
  void WriteImages(const StepInput& input);
  void WriteStates(const StepInput& input, bool is_padded);
  void WriteTables(const StepInput& input);
  void WriteAdapters(const StepInput& input);
  void WriteDraws(std::span<const TokenDraw> draws, std::span<const uint32_t> words);

  // Offsets of the slot of each row, and of the rows sorted by slot (kernels/cuda/device_kernels.h,
  // AddLoraArgs).
  struct AdapterRows {
    int64_t slots = 0, rows = 0, tiles = 0;  // offsets
    int64_t num_tiles = 0;
  };
  // `slots`: slot of each row. Uses `begin_of_slot_` as scratch.
  void WriteAdapterRows(std::span<const int32_t> slots, AdapterRows& to);

  int block_size_ = 0;
  int64_t max_context_ = 0;
  RankPlace place_;
  // By rank: the range of the vocabulary that the rank has, if ranks divide it.
  std::vector<RowRange> words_;
  std::vector<int64_t> embeddings_;  // by rank: number of embeddings in the step
  int64_t num_own_tokens_ = 0, own_token_rows_ = 0;
  std::vector<KindPlan> plans_;
  DeviceBuffer host_;
  int buffer_ = 0;  // index of the host buffer of the last step that was sent
  std::byte* device_memory_ = nullptr;
  int64_t begin_ = 0;  // offset of the data that is sent; draws are before it
  int64_t end_ = 0;
  // Number of rows, including padding; num_slices_ also includes padding.
  int64_t num_rows_ = 0;
  int64_t num_slices_ = 0;     // number of slices of one group
  int64_t num_padding_ = 0;    // number of padding rows and padding slices
  int64_t table_entries_ = 0;  // number of block table entries of one group
  int64_t tokens_ = 0, embedding_places_ = 0, positions_ = 0, logit_rows_ = 0, slots_ = 0,
          slices_ = 0, tables_ = 0, states_ = 0, kept_ = 0, index_rows_ = 0;
  bool keeps_states_ = false;
  bool takes_hidden_ = false;  // whether the model is a drafting head
  int64_t hidden_rows_ = 0;
  int64_t num_axes_ = 0;  // number of axes of rope_positions_
  int64_t rope_positions_ = 0, image_rows_ = 0, image_places_ = 0, last_seen_ = 0;
  int64_t num_image_rows_ = 0;
  bool sees_images_ = false;  // whether tokens of an image attend to each other in any layer
  bool has_seen_ = false;     // whether last_seen_ was written
  bool has_adapters_ = false;
  int num_slots_ = 0;                   // number of adapter slots
  std::vector<int32_t> row_slots_;      // slots of the step's rows, then of its logit rows
  std::vector<int32_t> begin_of_slot_;  // [slots + 1]: index of the first row of each slot
  AdapterRows adapters_, logit_adapters_;
  int64_t all_tokens_ = 0;
  int64_t num_draws_ = 0, settings_ = 0, extras_ = 0, draw_words_ = 0;
  bool has_extras_ = false, tells_logprobs_ = false;
  int64_t most_top_ = 0;  // maximum number of top logprobs over the rows of the step
  // Offsets of results that are copied back.
  int64_t drawn_tokens_ = 0, drawn_errors_ = 0, drawn_logprobs_ = 0, drawn_tops_ = 0;
};

}  // namespace sluice
