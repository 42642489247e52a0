// A decoder model: tokens in, logits (or hidden states, or scores) out, over a paged KV cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/op_times.h"
#include "base/result.h"
#include "base/state_slots.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/block_maxima.h"
#include "kernels/draw_settings.h"
#include "models/drafter_spec.h"
#include "models/kv_cache.h"
#include "models/lora_options.h"
#include "models/model_config.h"

namespace sluice {

// Decode steps that a device captures as CUDA graphs before the first request, and replays later.
// Each has one token for each of a number of sequences.
struct RecordedSteps {
  std::vector<int64_t> sequences;  // ascending; empty: no graphs
  // Whether steps with another number of sequences are padded to the next size. If not, they are
  // not replayed.
  bool pads = true;
  // Whether to run each step once before capture, because the first run may load code and allocate
  // memory.
  bool runs_before = true;

  bool operator==(const RecordedSteps&) const = default;
};

// How a model is loaded, and the limits of a step. The workspace is allocated once, for these
// limits.
struct ModelOptions {
  ElementType compute_type =
      ElementType::kBF16;  // type of the inputs of matrix products: BF16 or F32
  enum class LoadFormat { kAuto, kDummy } load_format = LoadFormat::kAuto;
  // Rounding of the inputs of quantized linear layers. kAuto: rounded to INT8 if the scheme
  // specifies that and the compute type is BF16. kBf16: not rounded. kCheckpoint: as the scheme
  // specifies.
  enum class ActivationRounding { kAuto, kBf16, kCheckpoint };
  ActivationRounding activation_format = ActivationRounding::kAuto;
  // On a device: whether a row's result must not depend on the rest of the step. On the CPU, it
  // never depends on it.
  bool batch_invariant = false;
  // Whether devices that share layers gather only by NCCL, even if they address each other's
  // memory.
  bool exchanges_by_nccl = false;
  // On a device: whether FP8 products may accumulate in the tensor cores' lower precision, if that
  // was measured to be faster.
  bool fast_accumulation = false;
  // Whether weights that are NaN or infinite are loaded, with a warning.
  bool allow_nonfinite = false;
  // On a device: the file that keeps the measured fastest kernels of the vendor's library between
  // starts. Empty: they are measured at every start.
  std::filesystem::path linear_tactics;
  // For tests: the library of products on an emulated device (DeviceLinearOptions::library), and
  // whether rows are packed for it in separate launches.
  std::string linear_library = {};
  bool packs_rows_apart = false;
  uint64_t dummy_seed = 0;                   // seed of kDummy's random weights
  ElementType kv_type = ElementType::kBF16;  // BF16, F16, F32 or F8_E4M3
  int block_size = 16;                       // tokens in a KV block
  int64_t max_rows = 2048;                   // tokens in a step (max_num_batched_tokens)
  int64_t max_slices = 256;                  // sequences in a step (max_num_seqs)
  int64_t max_context = 4096;                // tokens in a sequence (max_model_len)
  int64_t max_logit_rows = 256;              // rows of logits in one call of Forward
  LoraOptions lora = {};                     // decoders only
  RecordedSteps recorded = {};               // on a device: graphs to capture
  // Number of sequences whose states the cache holds; 0 if the model keeps no states.
  int64_t state_slots = 0;
  // Receives the time of each operator; on a device, this requires waiting for each operator. Null:
  // times are not measured. If ranks share layers, only the first rank measures.
  std::shared_ptr<OpTimes> op_times = {};
  // The rows that are written to StepInput::handed or, on a device, to handed_rows().
  HandedRows handed = {};
  // Number of slots for image rows (StepInput::stored_image_rows); 0: steps have no image rows.
  int64_t image_rows = 0;
  // For a drafting head: the modules around the layers of its DecoderSpec; else null.
  std::shared_ptr<const DrafterSpec> drafter = {};
  // For a drafting head on a device: the model whose tables it may share, and the number of rows of
  // kept_rows().
  std::shared_ptr<const ModelConfig> target = {};
  int64_t kept_rows = 0;
};

// Memory that loading will take, computed only from config.json.
struct ModelMemory {
  int64_t weight_bytes = 0;
  // Part of the weights that a step of one token reads: all except the embedding table and the
  // experts not chosen.
  int64_t token_weight_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t lora_bytes = 0;  // bytes of the adapters' slots
  // Estimated bytes of the graphs of recorded steps, without their memory pool.
  int64_t graph_bytes = 0;
  int64_t kv_bytes_per_block = 0;        // bytes of K and V of block_size tokens in all layers
  int64_t kv_bytes_per_group_block = 0;  // the same, but only for the layers of one group
  // Bytes of the states that a sequence has in addition to its blocks, summed over all ranks; 0:
  // none.
  int64_t state_bytes_per_slot = 0;
  KvGroups kv_groups = {};
};

// How to draw the token of a row of logits, for models that draw tokens themselves.
struct TokenDraw {
  bool is_wanted = false;  // false: the row's logits are returned instead
  kernels::DrawSettings settings = {};
  kernels::DrawExtras extras = {};  // within the limits of Model::draw_limits()
  // Output: the token, or -1 and the error.
  int32_t token = -1;
  kernels::DrawError error = kernels::DrawError::kNone;
  // Output, if extras.logprobs is set: logprobs of the token, and of the extras.num_top largest
  // logits. The latter are in the caller's memory.
  kernels::DrawnLogprobs logprobs = {};
  std::span<kernels::TopLogit> top = {};
};

// Limits of the draws of a step.
struct DrawLimits {
  int64_t words = 0;  // total words of lists and masks; 0: draws must not have any
  int32_t top = 0;    // maximum number of top logits per draw, in addition to the drawn token's
};

// A row of an image in a step: a tower's output, which replaces the embedding of its token.
struct ImageRow {
  int32_t row = 0;                // index of the row in the step
  const float* values = nullptr;  // [ImageTower::row_width()]
  int32_t place = 0;              // see StoredImageRow::place
};

// A row of an image that later steps use. Models whose memory is not the caller's, such as a
// device's, copy it.
struct StoredImageRow {
  int32_t place = 0;              // slot number, less than ModelOptions::image_rows
  const float* values = nullptr;  // [ImageTower::row_width()]
};

// Hidden rows in a device's memory, F32 [parts, stride, hidden_size]. A row has a piece in each of
// HandedRows::NumParts() parts.
struct DeviceHidden {
  float* rows = nullptr;
  int64_t stride = 0;  // number of rows for which each part has room
};

// One step over a mixed batch. Rows are the tokens of all slices, slice by slice.
struct StepInput {
  // [rows]. In models with takes_drawn_tokens(), -1 - i stands for the token of draw i of the
  // previously begun step.
  std::span<const int32_t> tokens;
  std::span<const int32_t> positions;  // [rows], absolute
  // In row order; repeated for each group of the cache, with that group's block tables.
  std::span<const kernels::AttentionSlice> slices;
  std::span<const int32_t> logit_rows;  // rows whose logits are returned, ascending
  int64_t num_groups = 1;
  // [logit_rows.size()], for models that draw tokens; empty: the logits of all rows are returned.
  std::span<TokenDraw> draws = {};
  std::span<const uint32_t> draw_words = {};  // lists and masks to which DrawExtras refer
  // [slices of a group], for models with token types: the position from which a sequence's tokens
  // have type 1 instead of 0.
  std::span<const int32_t> second_texts = {};
  // [slices of a group]: slot of each slice's adapter, -1 for none; empty: no adapters.
  std::span<const int32_t> adapters = {};
  // For models whose sequences keep states (ModelOptions::state_slots > 0). `states` [slices of a
  // group]: slot of each slice. `state_copies`: copies of slots, done in order before anything
  // else. `state_snapshots`: slots that receive the state after some rows of a slice. A slot occurs
  // in only one of the three, with two exceptions: it may be the source of a copy, or the target of
  // a copy from which a slice continues.
  std::span<const StateSlot> states = {};
  std::span<const StateCopy> state_copies = {};
  std::span<const StateSnapshot> state_snapshots = {};
  // [axes, rows], for models with DecoderSpec::rope_axes: positions on each axis; empty: all rows
  // have their plain positions.
  std::span<const int32_t> rope_positions = {};
  // Rows of images, ascending. Tokens of an image that attend to each other are in the same step.
  std::span<const ImageRow> image_rows = {};
  // Rows of images that were computed since the last step; places are unique. Their values are
  // read before Begin returns.
  std::span<const StoredImageRow> stored_image_rows = {};
  // Output, for models with finds_maxima(): kernels::RowMaxima of the logits, dense
  // [logit_rows.size(), NumMaxima(vocab_size)]; empty: not computed. Written with the results.
  std::span<float> maxima = {};
  // Output. The hidden rows that ModelOptions::handed selects, for all rows: F32 [rows, HandedRows
  // width]. For a drafting head: the rows that it feeds back to itself, for the logit rows only:
  // [logit_rows.size(), hidden_size]. Empty: not written.
  std::span<float> handed = {};
  // For a drafting head: F32 hidden rows that precede its tokens. With takes_target, the target's
  // rows [rows, target_width()]; else the head's own rows [rows, hidden_size].
  std::span<const float> hidden = {};
  bool takes_target = true;
  // Instead of `hidden`, for a head on a device: memory with hidden rows, and for each row of the
  // step the index of its hidden row there, [rows].
  DeviceHidden hidden_memory = {};
  std::span<const int32_t> hidden_rows = {};

  std::span<const kernels::AttentionSlice> SlicesOf(int64_t group) const {
    const size_t count = slices.size() / static_cast<size_t>(num_groups);
    return slices.subspan(static_cast<size_t>(group) * count, count);
  }
};

class DeviceStream;
class LoraStore;

// The memory in which a model on a single device keeps image rows (StepInput::stored_image_rows).
struct DeviceImages {
  float* rows = nullptr;  // [ModelOptions::image_rows, ImageTower::row_width()]
  // Stream of the model's steps; work that writes the rows is enqueued there.
  DeviceStream* stream = nullptr;
};

// Thread safety: Forward, Begin and Finish by one thread at a time; everything else is constant
// after loading.
class Model {
 public:
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }

  // Call on the thread that will call Forward, before its first call: allocates the memory that
  // this thread needs in addition to the workspace, so that no step allocates.
  virtual void PrepareThread(const ThreadPool& /*pool*/) {}

  // Whether StepInput::draws may request tokens: those that DrawToken in sampler/draw.h would draw,
  // or the argmax. Logits of these rows need not leave the device.
  virtual bool draws_tokens() const { return false; }
  virtual DrawLimits draw_limits() const { return {}; }

  // Whether StepInput::maxima may be set; computing them costs almost nothing compared with the
  // logits.
  virtual bool finds_maxima() const { return false; }

  // Call with the memory to which every Forward will write its logits, so that copies from a device
  // can be asynchronous. Call with an empty span before that memory is freed.
  virtual void PrepareLogits(std::span<float> /*logits*/) {}

  // Computes the step. Appends K and V of every row to `cache`. Writes `results`, F32
  // [logit_rows.size(), DecoderSpec::ResultSize()]: logits, or the results of another kind of head.
  // They are unspecified for rows whose token is drawn. A row's result depends only on its own
  // sequence's tokens (the CPU promise). REQUIRES: sizes within the options' limits.
  virtual void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache,
                       float* results) = 0;

  // Begin and Finish are the two halves of Forward. Up to steps_in_flight() steps may have begun
  // without being finished. They are computed in the order in which they began: a step reads keys
  // and values that earlier steps append to the cache, and may use blocks that an earlier step
  // still uses. When Begin returns, it has read `input` except `draws`; the model writes `draws`
  // and `results` until Finish returns. Finish ends the oldest step. If either function throws, its
  // step ends; other steps in flight continue, and may also throw.
  virtual int steps_in_flight() const { return 1; }
  virtual void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) {
    Forward(pool, input, cache, results);
  }
  virtual void Finish(ThreadPool& /*pool*/) {}

  // Device models: captures CUDA graphs for decode steps using `cache`. Call before the first
  // step. Sizes that cannot be captured are logged and run eagerly. Graphs change no result,
  // except for products of a vendor's library, which may depend on the number of rows.
  // Afterwards the content of the first block of `cache` is undefined. Fails if the device is
  // lost.
  virtual Status RecordSteps(const RecordedSteps& /*steps*/, KvCache& /*cache*/) { return {}; }
  // Number of steps replayed so far.
  virtual int64_t num_replayed() const { return 0; }

  // Whether a step may begin with tokens that the previous step draws but has not returned yet.
  virtual bool takes_drawn_tokens() const { return false; }

  // Memory to which a tower on the same device may write image rows; null: steps contain the rows.
  virtual DeviceImages device_images() { return {}; }

  // On a device: the memory to which each step writes the rows of ModelOptions::handed, [max_rows],
  // or to which a drafting head writes its own rows, [max_logit_rows].
  virtual DeviceHidden handed_rows() { return {}; }
  // For a drafting head on a device: memory for rows of its target that later steps read. KeepRows
  // copies rows [first, first + count) of the target's handed_rows() to the rows from `place` on,
  // before later steps of either model.
  virtual DeviceHidden kept_rows() { return {}; }
  virtual void KeepRows(const DeviceHidden& /*from*/, int64_t /*first*/, int64_t /*count*/,
                        int64_t /*place*/) {}

  // The adapters of all ranks; null if the model serves none. Models that share weights also share
  // adapters.
  virtual std::shared_ptr<LoraStore> lora() { return nullptr; }

  // Returns kUnavailable, with the reason, if a rank is lost and therefore no further step can be
  // computed. May be called from any thread.
  virtual Status CheckAlive() { return {}; }

  // Returns another model that shares this model's weights, which stay in memory as long as either
  // model lives. It has its own workspace, so that both may compute at the same time. `pool`: the
  // pool of its Forward.
  virtual Result<std::unique_ptr<Model>> Share(const ThreadPool& /*pool*/) const {
    return Fail(ErrorCode::kUnsupported, "the weights of this model cannot be shared by engines");
  }

 protected:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}
  ModelConfig config_;
};

// Called repeatedly while weights load, from the loading thread, with the number of tensor bytes
// loaded so far and in total.
using LoadProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

// kUnsupported names an architecture that is not in the registry.
Result<ModelMemory> PlanModel(const ModelConfig& config, const ModelOptions& options,
                              int num_threads);

// Loads the checkpoint in `folder`. Checks that every tensor of the model is filled exactly once,
// and that every tensor in the files is used or known to be superfluous. Otherwise the error names
// file and tensor.
Result<std::unique_ptr<Model>> LoadModel(ThreadPool& pool, const std::filesystem::path& folder,
                                         const ModelConfig& config, const ModelOptions& options,
                                         const LoadProgress& progress = {});
}  // namespace sluice
