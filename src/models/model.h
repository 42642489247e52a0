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

// Steps that a device records before the first request, and replays: of one token for each of up to
// so many sequences.
struct RecordedSteps {
  std::vector<int64_t> sequences;  // ascending; empty: none are recorded
  // Steps of other numbers of sequences are padded to the next one; else they are not replayed.
  bool pads = true;
  // Each is computed once before, as what it needs may be loaded and allocated by the first run.
  bool runs_before = true;

  bool operator==(const RecordedSteps&) const = default;
};

// How a model is loaded and how large its steps may get. The workspace is allocated once for these
// limits.
struct ModelOptions {
  ElementType compute_type = ElementType::kBF16;  // of the inputs of matrix products: BF16 or F32
  enum class LoadFormat { kAuto, kDummy } load_format = LoadFormat::kAuto;
  // Rounding of the inputs of quantized linear layers: kAuto rounds them to INT8 if the scheme does
  // and the compute type is BF16, kBf16 leaves them as they are, kCheckpoint rounds them as the
  // scheme says.
  enum class ActivationRounding { kAuto, kBf16, kCheckpoint };
  ActivationRounding activation_format = ActivationRounding::kAuto;
  // On a device: a row's result does not depend on the rest of the step. On the CPU it never does.
  bool batch_invariant = false;
  // On a device: FP8 products may be added up in the tensor cores' own, lower precision, where that
  // was measured to be faster.
  bool fast_accumulation = false;
  // Weights that are NaN or infinite are loaded, with a warning.
  bool allow_nonfinite = false;
  // On a device: the file that keeps which kernels of the vendor's library were measured to be the
  // fastest, from one start to the next. Empty: they are measured at every start.
  std::filesystem::path linear_tactics;
  uint64_t dummy_seed = 0;                   // of the random weights of kDummy
  ElementType kv_type = ElementType::kBF16;  // BF16, F16, F32 or F8_E4M3
  int block_size = 16;                       // tokens in a KV block
  int64_t max_rows = 2048;                   // tokens in a step (max_num_batched_tokens)
  int64_t max_slices = 256;                  // sequences in a step (max_num_seqs)
  int64_t max_context = 4096;                // tokens in a sequence (max_model_len)
  int64_t max_logit_rows = 256;              // rows of logits in one call of Forward
  LoraOptions lora = {};                     // of a decoder
  RecordedSteps recorded = {};               // on a device: what RecordSteps will be asked for
  // States of sequences that the cache has room for; 0 where the model keeps none.
  int64_t state_slots = 0;
  // Counts the time of each operator, on a device by waiting for it; null: nothing is counted. Of
  // several ranks that share a layer the first one counts.
  std::shared_ptr<OpTimes> op_times = {};
  HandedRows handed = {};  // what StepInput::handed receives; on the CPU
  // For a drafting head, what it has before and after its DecoderSpec's layers; else null.
  std::shared_ptr<const DrafterSpec> drafter = {};
};

// What loading will take, from config.json alone.
struct ModelMemory {
  int64_t weight_bytes = 0;
  // The part of the weights that a step of one token reads: all except the embedding's table and
  // the experts that are not chosen.
  int64_t token_weight_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t lora_bytes = 0;                // of the slots of adapters
  int64_t graph_bytes = 0;               // about, of ModelOptions::recorded; not of the pool
  int64_t kv_bytes_per_block = 0;        // block_size tokens in all layers, K and V
  int64_t kv_bytes_per_group_block = 0;  // the same in the layers of a group
  // The states that a sequence keeps besides its blocks, on all ranks; 0: none.
  int64_t state_bytes_per_slot = 0;
  KvGroups kv_groups = {};
};

// How the token of a row of logits is drawn by a model that draws tokens itself.
struct TokenDraw {
  bool is_wanted = false;  // false: the row's logits are wanted instead
  kernels::DrawSettings settings = {};
  kernels::DrawExtras extras = {};  // within Model::draw_limits()
  // Out: the token, or -1 and why there is none.
  int32_t token = -1;
  kernels::DrawError error = kernels::DrawError::kNone;
  // Out, where extras.logprobs asks for them: of the token, and the extras.num_top largest, in
  // memory of the caller's.
  kernels::DrawnLogprobs logprobs = {};
  std::span<kernels::TopLogit> top = {};
};

// What the draws of a step may ask for besides a token.
struct DrawLimits {
  int64_t words = 0;  // of lists and masks, in all; 0: rows are drawn from as they are
  int32_t top = 0;    // logits beside the token's
};

// A row of an image in a step: what a tower made of it takes the place of its token's embedding.
struct ImageRow {
  int32_t row = 0;                // of the step
  const float* values = nullptr;  // [ImageTower::row_width()]
};

// One step over a mixed batch. Rows are the tokens of all slices, one slice after the other.
struct StepInput {
  // [rows]. Of models with takes_drawn_tokens(): -1 - i is the token of the i-th of the draws of
  // the step that was begun before.
  std::span<const int32_t> tokens;
  std::span<const int32_t> positions;  // [rows], absolute
  // In the order of their rows; once for each group of the cache, with that group's block tables.
  std::span<const kernels::AttentionSlice> slices;
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  int64_t num_groups = 1;
  // [logit_rows.size()], of models that draw tokens; empty: all rows' logits are wanted.
  std::span<TokenDraw> draws = {};
  std::span<const uint32_t> draw_words = {};  // the lists and masks that DrawExtras tell of
  // [slices of a group], of models with token types: the position from which a sequence's tokens
  // have type 1 instead of 0.
  std::span<const int32_t> second_texts = {};
  // The slot of each slice's adapter [slices of a group], -1 where it has none; empty: none has.
  std::span<const int32_t> adapters = {};
  // For models whose sequences keep states (ModelOptions::state_slots > 0): the slot of each slice
  // [slices of a group]; copies of slots, done in order before anything else; and slots that
  // receive states on the way, by slice and rows. No slot is in two of these, except as a copy's
  // source or as the target of a copy that a slice continues from.
  std::span<const StateSlot> states = {};
  std::span<const StateCopy> state_copies = {};
  std::span<const StateSnapshot> state_snapshots = {};
  // [axes, rows] of models whose rope has axes (DecoderSpec::rope_axes), where a row's differ from
  // its position; empty: nowhere in the step.
  std::span<const int32_t> rope_positions = {};
  // Rows of images, ascending; those of one image whose tokens see each other are in one step.
  std::span<const ImageRow> image_rows = {};
  // Out: of models that find them, kernels::RowMaxima of the logits, dense [logit_rows.size(),
  // NumMaxima(vocab_size)]; empty: they are not wanted. Written when the results are.
  std::span<float> maxima = {};
  // Out: ModelOptions::handed of all rows, F32 [rows, its width]; of a drafting head what it makes
  // for itself of the wanted rows, [logit_rows.size(), hidden_size]. Empty: not wanted.
  std::span<float> handed = {};
  // For a drafting head, the F32 hidden rows that its tokens follow: the target's [rows,
  // target_width()], or its own [rows, hidden_size].
  std::span<const float> hidden = {};
  bool takes_target = true;

  std::span<const kernels::AttentionSlice> SlicesOf(int64_t group) const {
    const size_t count = slices.size() / static_cast<size_t>(num_groups);
    return slices.subspan(static_cast<size_t>(group) * count, count);
  }
};

class LoraStore;

// Thread safety: Forward, Begin and Finish by one thread at a time; the rest is constant after
// loading.
class Model {
 public:
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }

  // To be called on the thread that will call Forward, before its first call: takes what that
  // thread needs besides the workspace, so that no step allocates.
  virtual void PrepareThread(const ThreadPool& /*pool*/) {}

  // Whether StepInput::draws may ask for tokens: those that DrawToken of sampler/draw.h draws, or
  // the largest, so that their logits need not leave the device.
  virtual bool draws_tokens() const { return false; }
  virtual DrawLimits draw_limits() const { return {}; }

  // Whether StepInput::maxima may be asked for: it costs next to nothing while logits are computed.
  virtual bool finds_maxima() const { return false; }

  // To be called with the memory that every call of Forward will write its logits to: a device's
  // copies to it then run beside the host. And with nothing before that memory goes.
  virtual void PrepareLogits(std::span<float> /*logits*/) {}

  // Computes the step: appends K and V of every row to `cache` and writes the results of the wanted
  // rows [logit_rows.size(), DecoderSpec::ResultSize()] F32: their logits, unless the spec's head
  // says otherwise; of rows whose token is drawn they are unspecified. Row i of the result depends
  // only on its own sequence's tokens (the CPU promise). REQUIRES: sizes within the options'
  // limits.
  virtual void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache,
                       float* results) = 0;

  // Forward in two halves, between which other steps may begin: up to steps_in_flight() have begun
  // and are not finished. They are computed in the order in which they begin, so that a step finds
  // in the cache what those before it append, and blocks that it is given may be those that a step
  // before it uses. Begin has read `input` when it returns, but for `draws`; those and `results`
  // are written, and belong to the model, until Finish, which is called for the step that began
  // first, returns. A step is over when either throws; those that began before or after it are
  // not, and may throw, too.
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
  // Steps that were replayed so far.
  virtual int64_t num_replayed() const { return 0; }

  // Whether a step may begin with tokens that the one before draws and has not told yet.
  virtual bool takes_drawn_tokens() const { return false; }

  // The adapters that requests may ask for, of all ranks; null where the model serves none. A model
  // that shares its weights shares them.
  virtual std::shared_ptr<LoraStore> lora() { return nullptr; }

  // kUnavailable, with the reason, once no step can be computed any more: a rank is gone. From any
  // thread.
  virtual Status CheckAlive() { return {}; }

  // Another model with the same weights, which are in memory once and stay as long as either lives;
  // its workspace is its own, so that both may compute at the same time. `pool`: of its Forward.
  virtual Result<std::unique_ptr<Model>> Share(const ThreadPool& /*pool*/) const {
    return Fail(ErrorCode::kUnsupported, "the weights of this model cannot be shared by engines");
  }

 protected:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}
  ModelConfig config_;
};

// Called now and then while weights load, with tensor bytes done and in all; from the loading
// thread.
using LoadProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

// kUnsupported names an architecture that is not in the registry.
Result<ModelMemory> PlanModel(const ModelConfig& config, const ModelOptions& options,
                              int num_threads);

// Loads the checkpoint in `folder`. Every tensor of the model is filled exactly once and every
// tensor of the files is used or known to be superfluous; anything else is an error that names file
// and tensor.
Result<std::unique_ptr<Model>> LoadModel(ThreadPool& pool, const std::filesystem::path& folder,
                                         const ModelConfig& config, const ModelOptions& options,
                                         const LoadProgress& progress = {});
}  // namespace sluice
