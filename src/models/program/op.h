// The operators of a forward pass. A model is a list of operators (program.h). build_decoder.cc and
// build_encoder.cc build the list once from the model's spec; an executor runs the list in every
// step.
//
// An executor runs an operator in one call. An operator's operands are handles of buffers and
// weights, and its attributes are values; it has no pointers into a step. Operands() lists its
// buffers, from which memory is planned (buffers.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>

#include "checkpoint/scheme.h"
#include "kernels/activation_rule.h"
#include "kernels/clamped_swiglu.h"
#include "models/decoder_spec.h"
#include "models/program/op_attention.h"
#include "models/program/op_images.h"
#include "models/program/operands.h"
#include "tensor/element_type.h"

namespace sluice::program {

// --- Control flow -------------------------------------------------------------------------------

// Continues at operator `to` if the condition is false. kHasRows and kWantsRows: the step has rows,
// or has rows with results. If not, no rows remain after the jump. kTakesTarget and kTakesOwn: the
// hidden rows of a drafting head are the target's, or its own. After this jump, the rows remain.
struct SkipUnless {
  static constexpr const char* kName = "SkipUnless";
  enum class Condition { kHasRows, kWantsRows, kTakesTarget, kTakesOwn };
  Condition condition = Condition::kHasRows;
  int32_t to = 0;
  template <typename Use>
  void Operands(Use&&) const {}
};

// Runs the next `count` operators for consecutive parts of the step with at most `rows` rows each.
// With experts, each row has `pairs_each` (row, expert) pairs.
struct Parts {
  static constexpr const char* kName = "Parts";
  int32_t count = 0;
  int64_t rows = 0;
  int64_t pairs_each = 1;
  template <typename Use>
  void Operands(Use&&) const {}
};

// --- Inputs, and messages between stages --------------------------------------------------------

// Looks up the step's tokens in a table and multiplies by `scale`. Each rank has a part of the
// table.
struct Embed {
  static constexpr const char* kName = "Embed";
  TableId table = kNone;
  BufferId out = kNone;  // F32 [rows, width]
  // With several ranks: buffers for rows of the same size. own: this rank's rows (on a device);
  // scratch: the rows of all ranks.
  BufferId own = kNone, scratch = kNone;
  int64_t vocab = 0, width = 0;
  float scale = 1;
  std::array<int32_t, 2> placeholders = {-1, -1};  // see DecoderSpec::placeholders
  int32_t lora = kNone;
  BufferId lora_scratch = kNone;  // only on a device
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
    use(lora_scratch, Access::kScratch);
    use(own, Access::kScratch);
    use(scratch, Access::kScratch);
  }
};

// Combines the layers' embeddings of the step's tokens with `x`, the projection of the token
// embeddings (LayerEmbeddingsArgs of kernels/cuda/device_kernels.h). Only on devices; the CPU's
// programs have several operators instead.
struct MixTable {
  static constexpr const char* kName = "MixTable";
  TableId table = kNone;
  VectorId weight = kNone;
  BufferId x = kNone;  // F32 [rows, num_layers, width]
  int64_t num_layers = 0, width = 0;
  float projection_scale = 1, table_scale = 1, sum_scale = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Adds the embeddings of positions and, if the model has them, of types.
struct AddEmbeddings {
  static constexpr const char* kName = "AddEmbeddings";
  BufferId x = kNone;      // F32 [rows, width]
  BufferId types = kNone;  // I8 [rows]
  VectorId positions = kNone, type_table = kNone;
  int64_t width = 0, first_position = 0, num_types = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(types, Access::kScratch);
  }
};

// Computes cosines and sines of the step's positions: F32 [rows, 2 * frequencies].
struct RopeTable {
  static constexpr const char* kName = "RopeTable";
  int32_t table = 0;  // index into Program::rope_tables
  // Index into Program::rope_axes: the axis of each frequency, if a row may have a position on each
  // of several axes (StepInput::rope_positions). kNone: all frequencies use the row's position.
  int32_t axes = kNone;
  float amplitude = 1;
  BufferId out = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
  }
};

// Receive and Send exchange messages between stages: rows of `width` F32 elements. Both also run if
// a step has no rows.
struct Receive {
  static constexpr const char* kName = "Receive";
  BufferId out = kNone;
  BufferId wanted_out = kNone;  // on a device: used instead of `out` if all rows have results
  int64_t width = 0;
  int32_t from_stage = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
    use(wanted_out, Access::kWrite);
  }
};
struct Send {
  static constexpr const char* kName = "Send";
  BufferId x = kNone;
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
  }
};
// Advances pending messages to and from other stages.
struct Progress {
  static constexpr const char* kName = "Progress";
  template <typename Use>
  void Operands(Use&&) const {}
};

// --- Whole rows ---------------------------------------------------------------------------------

// residual = (residual + delta * delta_factor) * sum_factor, if there is a delta. Then out = RMS
// norm of the residual or, without `weight`, the residual itself. Only devices use the factors; the
// CPU has separate operators for them.
struct Norm {
  static constexpr const char* kName = "Norm";
  BufferId residual = kNone;  // F32 [rows, width]
  BufferId delta = kNone;     // F32 [rows, width]
  VectorId weight = kNone;    // [width]
  // [rows, width], as `type`; on a device, in the format that `reader` reads.
  BufferId out = kNone;
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  Reader reader = {};
  BufferId scales = kNone;   // F32 [rows]: scales of rounded rows
  BufferId out_f32 = kNone;  // a copy in F32, if a router reads it
  VectorId sum_factor = kNone;
  float delta_factor = 1;
  float eps_factor = 1;  // multiplies Program::norm_eps; CPU only
  template <typename Use>
  void Operands(Use&& use) const {
    use(residual, delta == kNone ? Access::kRead : Access::kUpdate);
    use(delta, Access::kRead);
    use(out, Access::kWrite);
    use(scales, Access::kWrite);
    use(out_f32, Access::kWrite);
  }
};

// residual += delta, if there is one. Then out = layer norm of residual. With `keeps_norm`, also
// residual = out.
struct LayerNorm {
  static constexpr const char* kName = "LayerNorm";
  BufferId residual = kNone;  // F32 [rows, width]
  BufferId delta = kNone;     // F32 [rows, width]
  VectorId weight = kNone, bias = kNone;
  BufferId out = kNone;      // `type` [rows, width]
  BufferId scratch = kNone;  // F32 [rows, width]; kNone with keeps_norm
  ElementType type = ElementType::kF32;
  bool keeps_norm = false;
  int64_t width = 0;
  std::optional<float> eps = {};  // nullopt: Program::norm_eps
  template <typename Use>
  void Operands(Use&& use) const {
    use(residual, Access::kUpdate);
    use(delta, Access::kRead);
    use(scratch, Access::kScratch);
    use(out, Access::kWrite);
  }
};

// x += y, if there is a y. Then each of the `heads` pieces of each row of x is replaced by its RMS
// norm, if there is a `weight`.
struct NormRows {
  static constexpr const char* kName = "NormRows";
  BufferId x = kNone;  // F32 [rows, heads, width]
  BufferId y = kNone;  // only on a device
  VectorId weight = kNone;
  int64_t heads = 1, width = 0;
  std::optional<float> eps = {};  // nullopt: Program::norm_eps
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(y, Access::kRead);
  }
};

// Multiplies the first `width` elements of each row by `factor`, or by the single element of
// `vector`.
struct Scale {
  static constexpr const char* kName = "Scale";
  BufferId x = kNone;  // F32 [rows, width], rows `stride` elements apart
  int64_t width = 0;
  int64_t stride = 0;  // 0: width
  float factor = 1;
  VectorId vector = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Computes x += y.
struct Add {
  static constexpr const char* kName = "Add";
  BufferId x = kNone, y = kNone;  // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(y, Access::kRead);
  }
};

// Computes x = (x * x_factor + y) * sum_factor.
struct Mix {
  static constexpr const char* kName = "Mix";
  BufferId x = kNone, y = kNone;  // F32 [rows, width]
  int64_t width = 0;
  float x_factor = 1, sum_factor = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(y, Access::kRead);
  }
};

struct CopyColumns {
  static constexpr const char* kName = "CopyColumns";
  Columns from = {}, to = {};  // F32
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(from.buffer, Access::kRead);
    use(to.buffer, Access::kUpdate);
  }
};

// Copies the hidden rows that the step passes to a drafting head, as `type`.
struct TakeHidden {
  static constexpr const char* kName = "TakeHidden";
  // [rows, width]; on a device, unless it is F32, in the format that `reader` reads
  BufferId out = kNone;
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  // Only on a device. part_width: width of a piece (DeviceHidden). pieces, joined: memory for F32
  // rows, if `out` is not F32.
  int64_t part_width = 0;
  BufferId pieces = kNone, joined = kNone;  // [rows, width]
  BufferId scales = kNone;                  // F32 [rows]: scales of rounded rows
  Reader reader = {};
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
    use(pieces, Access::kScratch);
    use(joined, Access::kScratch);
    use(scales, Access::kWrite);
  }
};

// Writes the RMS norms of two rows as one row: [norm(x), norm(y)], as `type`. A half without a
// weight is copied unchanged.
struct JoinNorms {
  static constexpr const char* kName = "JoinNorms";
  BufferId x = kNone, y = kNone;  // F32 [rows, width]
  VectorId x_weight = kNone, y_weight = kNone;
  BufferId out = kNone;  // [rows, 2 * width]
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  BufferId pieces = kNone;  // only on a device: memory for both halves, [2, rows, width]
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(y, Access::kRead);
    use(pieces, Access::kScratch);
    use(out, Access::kWrite);
  }
};

// Copies rows to columns [begin, begin + width) of StepInput::handed, whose rows are `stride`
// elements apart; on a device, to part begin / width of `to` (DeviceHidden). All ranks have the
// same rows; only the first rank copies them.
struct HandRows {
  static constexpr const char* kName = "HandRows";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0, begin = 0, stride = 0;
  BufferId to = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(to, Access::kUpdate);
  }
};

// Moves the rows with results to the front; later operators compute only these. No later operator
// may mix rows, as attention does.
struct KeepRows {
  static constexpr const char* kName = "KeepRows";
  struct Kept {
    Columns columns = {};  // offsets and stride are in bytes
    int64_t bytes = 0;
    // On a device: the buffer to which the rows move. Later operators that name columns.buffer read
    // `to` instead.
    BufferId to = kNone;
  };
  std::array<Kept, 3> kept = {};
  template <typename Use>
  void Operands(Use&& use) const {
    for (const Kept& one : kept) {
      use(one.columns.buffer, Access::kUpdate);
      use(one.to, Access::kWrite);
    }
  }
};

// Gathers rows; each rank has some of their columns.
struct Gather {
  static constexpr const char* kName = "Gather";
  enum class Cut {
    kRows,    // columns are divided like the rows of a matrix with `count` rows
    kHeads,   // columns are divided like the query heads of layer `count` of the whole model
    kMixer,   // columns are divided like the heads of that layer's mixer
    kLogits,  // like kRows, but only the first rank receives them
  };
  Cut cut = Cut::kRows;
  int64_t count = 0;
  ElementType type = ElementType::kF32;
  BufferId own = kNone, all = kNone;
  BufferId joined = kNone;  // only on a device: room for the pieces of all ranks
  // On a device: the product that reads the rows. If it rounds whole rows, they are gathered as F32
  // in `all_f32`, then rounded to `all`.
  Reader reader = {};
  BufferId all_f32 = kNone, scales = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(own, Access::kRead);
    use(joined, Access::kScratch);
    use(all_f32, Access::kScratch);
    use(scales, Access::kUpdate);
    use(all, Access::kWrite);
  }
};

// Rounds BF16 rows as required by the product `reader`. Only on devices.
struct Convert {
  static constexpr const char* kName = "Convert";
  // BF16 [rows, width]; rounded in place if BF16 can represent the result.
  BufferId x = kNone;
  BufferId from = kNone;    // F32 [rows, width], which is read instead of `x`; the result is in `x`
  BufferId narrow = kNone;  // E4M3 [rows, width]: the rounded rows if BF16 cannot represent them
  BufferId scales = kNone;  // F32 [rows]
  Reader reader = {};
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, from == kNone ? Access::kUpdate : Access::kWrite);
    use(from, Access::kRead);
    use(narrow, Access::kWrite);
    use(scales, Access::kWrite);
  }
};

// --- Residual streams (StreamsSpec) --------------------------------------------------------------

// Writes the weighted sum of a row's streams to `out`, and the weights of ExpandStreams to `mixes`.
struct CollapseStreams {
  static constexpr const char* kName = "CollapseStreams";
  StreamsSpec spec = {};
  BufferId streams = kNone;                              // F32 [rows, count, width]
  VectorId matrix = kNone, base = kNone, scale = kNone;  // see StreamWeights
  BufferId mixes = kNone;  // F32 [rows, count * (1 + count)]; kNone: before the final norm
  BufferId out = kNone;    // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(streams, Access::kRead);
    use(mixes, Access::kWrite);
    use(out, Access::kWrite);
  }
};

// Adds a sublayer's result, times weights, to the mixed streams.
struct ExpandStreams {
  static constexpr const char* kName = "ExpandStreams";
  StreamsSpec spec = {};
  BufferId streams = kNone;  // F32 [rows, count, width]
  BufferId mixes = kNone;    // F32 [rows, count * (1 + count)]
  BufferId delta = kNone;    // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(mixes, Access::kRead);
    use(delta, Access::kRead);
    use(streams, Access::kUpdate);
  }
};

// --- Products and gates -------------------------------------------------------------------------

// y = W x + bias, plus the contributions of the step's adapters.
struct Project {
  static constexpr const char* kName = "Project";
  LinearId linear = kNone;
  TableId table = kNone;  // used instead of `linear` for a head tied to the embedding table
  BufferId x = kNone;     // `x_type` [rows, k]
  ElementType x_type = ElementType::kF32;
  BufferId y = kNone;  // `y_type` [rows, n], rows y_stride elements apart
  ElementType y_type = ElementType::kF32;
  int64_t n = 0, k = 0, y_stride = 0;
  int32_t lora = kNone;
  bool is_plain = false;      // whether inputs are neither rounded nor split
  bool finds_maxima = false;  // whether to store the maxima of rows of y, if the step requests them
  RoundingBuffers rounding = {};
  DeviceInputBuffers device = {};
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    device.Operands(use);
    use(rounding.rounded, Access::kScratch);
    use(rounding.scales, Access::kScratch);
    use(rounding.pairs, Access::kScratch);
    use(y, Access::kWrite);
  }
};

// Writes activation(x) to y [rows, width] as `type`. x is [rows, width] or, with a gate, [rows, 2 *
// width]. With a gate, the activation of the gate is multiplied by up.
struct GateMul {
  static constexpr const char* kName = "GateMul";
  Gate gate = Gate::kSilu;
  BufferId x = kNone;  // F32; its content is undefined afterwards
  BufferId y = kNone;
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  kernels::SwigluClamp clamp = {};
  // For kRule: the rule. For kXielu: also `numbers`, see MlpWeights::activation.
  kernels::ActivationRule rule = {};
  bool is_gated = true;
  VectorId numbers = kNone;
  // Used only on devices:
  ElementType x_type = ElementType::kF32;
  Reader reader = {};
  BufferId scales = kNone;   // F32 [rows]: scales of rounded rows
  bool is_gathered = false;  // whether ranks gather y before whole rows are rounded
  Columns factors = {};      // F32 rows that replace `up`
  float gate_factor = 1;     // factor of the gate, applied before the activation
  ExpertsId biased = kNone;  // experts whose bias is added to x
  BufferId order = kNone, chosen = kNone;
  MoeId moe = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(factors.buffer, Access::kRead);
    use(order, Access::kRead);
    use(chosen, Access::kRead);
    use(scales, Access::kWrite);
    use(y, Access::kWrite);
  }
};

// --- Experts ------------------------------------------------------------------------------------

// Chooses the experts of each row and computes their weights. x is F32, because rounding it could
// change which of two nearly equal experts is chosen.
struct Route {
  static constexpr const char* kName = "Route";
  MoeId moe = kNone;
  LinearId router = kNone;
  BufferId x = kNone;        // F32 [rows, width]
  BufferId logits = kNone;   // F32 [rows, experts]
  BufferId chosen = kNone;   // I32 [rows, top_k]
  BufferId weights = kNone;  // F32 [rows, top_k]
  VectorId choice_bias = kNone, factors = kNone;
  VectorId token_experts = kNone;  // if set: the experts of each token, so that none are chosen
  int64_t width = 0;
  int32_t lora = kNone;
  BufferId lora_scratch = kNone;  // only on a device
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(lora_scratch, Access::kScratch);
    use(logits, Access::kScratch);
    use(chosen, Access::kWrite);
    use(weights, Access::kWrite);
  }
};

// Multiplies y, the result of the shared expert, by the sigmoid of a linear layer of x with one
// output. On a device y is kNone, and CombineExperts applies the gates.
struct GateShared {
  static constexpr const char* kName = "GateShared";
  LinearId gate = kNone;
  BufferId x = kNone;      // F32 [rows, width]
  BufferId gates = kNone;  // F32 [rows]
  BufferId y = kNone;      // F32 [rows, y_width]
  int64_t width = 0, y_width = 0;
  int32_t lora = kNone;
  BufferId lora_scratch = kNone;  // only on a device
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(lora_scratch, Access::kScratch);
    use(gates, Access::kWrite);
    use(y, Access::kUpdate);
  }
};

// Sorts the (row, expert) pairs by expert (kernels/experts.h), and copies their rows of x.
struct GroupExperts {
  static constexpr const char* kName = "GroupExperts";
  MoeId moe = kNone;
  BufferId x = kNone;        // F32 [rows, width]
  BufferId chosen = kNone;   // I32 [rows, top_k]
  BufferId weights = kNone;  // F32 [rows, top_k]
  BufferId order = kNone;    // I32 [pairs]; `place` has the same shape
  BufferId place = kNone;
  BufferId row_begin = kNone;  // I32 [experts + 1]
  BufferId out = kNone;        // F32 [pairs, width]; on a device, in the format that `reader` reads
  int64_t width = 0;
  Reader reader = {};
  BufferId scales = kNone;  // F32 [pairs]: scales of rounded rows
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(chosen, Access::kRead);
    use(weights, Access::kRead);
    use(order, Access::kWrite);
    use(place, Access::kWrite);
    use(row_begin, Access::kWrite);
    use(scales, Access::kWrite);
    use(out, Access::kWrite);
  }
};

// Multiplies the pairs' rows by their experts' matrices.
struct ProjectExperts {
  static constexpr const char* kName = "ProjectExperts";
  ExpertsId experts = kNone;
  MoeId moe = kNone;
  BufferId x = kNone;  // F32 [pairs, k]
  BufferId y = kNone;  // `y_type` [pairs, n]
  ElementType y_type = ElementType::kF32;
  BufferId order = kNone, row_begin = kNone;
  int64_t n = 0, k = 0;
  int32_t lora = kNone;
  RoundingBuffers rounding = {};
  DeviceInputBuffers device = {};
  BufferId chosen = kNone;  // only on a device
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(chosen, Access::kRead);
    device.Operands(use);
    use(order, Access::kRead);
    use(row_begin, Access::kRead);
    use(rounding.rounded, Access::kScratch);
    use(rounding.scales, Access::kScratch);
    use(rounding.pairs, Access::kScratch);
    use(y, Access::kWrite);
  }
};

// Sums the results of each row's experts, in descending order of the experts' logits.
struct CombineExperts {
  static constexpr const char* kName = "CombineExperts";
  MoeId moe = kNone;
  BufferId x = kNone;  // F32 [pairs, width]
  BufferId place = kNone, weights = kNone;
  BufferId sum = kNone;  // F32 [rows, width]
  bool adds = false;     // whether to add to `sum` instead of overwriting it
  int64_t width = 0;
  // Used only on devices:
  BufferId gates = kNone;   // gates whose sigmoids multiply the former content of `sum`
  BufferId chosen = kNone;  // only with biases
  ExpertsId biased = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(place, Access::kRead);
    use(weights, Access::kRead);
    use(gates, Access::kRead);
    use(chosen, Access::kRead);
    use(sum, adds ? Access::kUpdate : Access::kWrite);
  }
};

// --- Results ------------------------------------------------------------------------------------

// Scales and soft-caps logits in place. Recomputes the maxima of rows if those of the product are
// no longer valid.
struct FinishLogits {
  static constexpr const char* kName = "FinishLogits";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  float scale = 1, cap = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Copies rows to the step's results.
struct CopyResults {
  static constexpr const char* kName = "CopyResults";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
  }
};

// Writes scores of rows to the step's results: a linear layer [num_scores, width], summed in F64.
struct Score {
  static constexpr const char* kName = "Score";
  BufferId x = kNone;  // F32 [rows, width]
  VectorId weights = kNone;
  int64_t width = 0, num_scores = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
  }
};

// Replaces row i by the mean of the rows of the i-th text. Each text has one row with results;
// these rows define the order of the texts.
struct MeanTexts {
  static constexpr const char* kName = "MeanTexts";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Writes the scores of an encoder's classifier (ClassifierWeights) to the step's results.
struct Classify {
  static constexpr const char* kName = "Classify";
  BufferId x = kNone;        // F32 [rows, width]
  BufferId scratch = kNone;  // has the size of `x`
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(scratch, Access::kScratch);
  }
};

using Op =
    std::variant<SkipUnless, Parts, Embed, MixTable, AddEmbeddings, RopeTable, Receive, Send,
                 Progress, Norm, LayerNorm, NormRows, Scale, Add, Mix, CopyColumns, TakeHidden,
                 JoinNorms, HandRows, KeepRows, Gather, Convert, Project, GateMul, RopeAppend,
                 AppendReceived, Attend, GateAttended, LimitRows, NormHeads, CopyHeads, NormTo,
                 LatentAppend, ChoosePositions, ChooseBlocks, AbsorbQueries, ExpandValues,
                 RotateHeads, CompressKeys, ListPositions, ProjectGroups, CollapseStreams,
                 ExpandStreams, Convolve, UpdateState, GateStates, Route, GateShared, GroupExperts,
                 ProjectExperts, CombineExperts, FinishLogits, CopyResults, Score, MeanTexts,
                 Classify, PlaceImages, AddImages, TakePatches, AddPositions, Regroup, MergePatches,
                 Clamp, Standardize, StoreImage>;

}  // namespace sluice::program
