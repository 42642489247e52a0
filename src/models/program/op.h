// The operators of a forward pass. A model is a list of them (program.h), which build_decoder.cc
// and build_encoder.cc make once from its description, and which an executor walks in every step.
//
// An operator is what an executor does in one call. Its operands are handles of buffers and of
// weights, its attributes are values; it has no pointers into a step. Each struct lists its buffers
// in Operands(): that is what memory is planned by (buffers.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>

#include "checkpoint/scheme.h"
#include "kernels/activation_rule.h"
#include "kernels/clamped_swiglu.h"
#include "models/program/op_attention.h"
#include "models/program/op_images.h"
#include "models/program/operands.h"
#include "tensor/element_type.h"

namespace sluice::program {

// --- The way through the list -------------------------------------------------------------------

// A step without rows, or without wanted rows, goes on at operator `to`, with no rows. One of a
// drafting head whose hidden rows are not the target's, or not its own, goes on there with all.
struct SkipUnless {
  static constexpr const char* kName = "SkipUnless";
  enum class Condition { kHasRows, kWantsRows, kTakesTarget, kTakesOwn };
  Condition condition = Condition::kHasRows;
  int32_t to = 0;
  template <typename Use>
  void Operands(Use&&) const {}
};

// The next `count` operators are run for parts of the rows, one after the other, of at most `rows`
// rows. Of experts each row makes `pairs_each` pairs of a row and an expert.
struct Parts {
  static constexpr const char* kName = "Parts";
  int32_t count = 0;
  int64_t rows = 0;
  int64_t pairs_each = 1;
  template <typename Use>
  void Operands(Use&&) const {}
};

// --- Rows come in, and go out -------------------------------------------------------------------

// Rows of a table by the step's tokens, times `scale`. Ranks hold parts of the table.
struct Embed {
  static constexpr const char* kName = "Embed";
  TableId table = kNone;
  BufferId out = kNone;  // F32 [rows, width]
  // With ranks, of the same size: this rank's rows (on a device), and all ranks' rows.
  BufferId own = kNone, scratch = kNone;
  int64_t vocab = 0, width = 0;
  float scale = 1;
  std::array<int32_t, 2> placeholders = {-1, -1};  // DecoderSpec::placeholders
  int32_t lora = kNone;
  BufferId lora_scratch = kNone;  // on a device
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
    use(lora_scratch, Access::kScratch);
    use(own, Access::kScratch);
    use(scratch, Access::kScratch);
  }
};

// What layers read of the tokens, from the projection of their embeddings (LayerEmbeddingsArgs of
// kernels/cuda/device_kernels.h). Devices; the CPU emits its parts.
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

// Adds the embeddings of positions and of types, where there are such.
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

// Cosines and sines of the step's positions: F32 [rows, 2 * frequencies].
struct RopeTable {
  static constexpr const char* kName = "RopeTable";
  int32_t table = 0;  // of Program::rope_tables
  // Index of Program::rope_axes: the axis of each frequency, if a row may have a position on
  // several (StepInput::rope_positions); kNone: all turn with the row's position.
  int32_t axes = kNone;
  float amplitude = 1;
  BufferId out = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
  }
};

// Ranks of other stages: rows of `width` F32 numbers. Both are run without rows, too.
struct Receive {
  static constexpr const char* kName = "Receive";
  BufferId out = kNone;
  BufferId wanted_out = kNone;  // on a device: of rows that are all wanted
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
// Lets messages to and from other stages make progress.
struct Progress {
  static constexpr const char* kName = "Progress";
  template <typename Use>
  void Operands(Use&&) const {}
};

// --- Whole rows ---------------------------------------------------------------------------------

// residual = (residual + delta * delta_factor) * sum_factor, if there is a delta; then out = its
// RMS norm, or itself without `weight`. Factors: devices; the CPU scales by operators of its own.
struct Norm {
  static constexpr const char* kName = "Norm";
  BufferId residual = kNone;  // F32 [rows, width]
  BufferId delta = kNone;     // F32 [rows, width]
  VectorId weight = kNone;    // [width]
  BufferId out = kNone;       // [rows, width]: of `type`, on a device as `reader` takes it
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  Reader reader = {};
  BufferId scales = kNone;   // F32 [rows], of rows that are rounded
  BufferId out_f32 = kNone;  // the same in F32, where a router reads it, too
  VectorId sum_factor = kNone;
  float delta_factor = 1;
  float eps_factor = 1;  // of Program::norm_eps, on the CPU
  template <typename Use>
  void Operands(Use&& use) const {
    use(residual, delta == kNone ? Access::kRead : Access::kUpdate);
    use(delta, Access::kRead);
    use(out, Access::kWrite);
    use(scales, Access::kWrite);
    use(out_f32, Access::kWrite);
  }
};

// residual += delta, if there is one; then out = its layer norm, which the residual becomes, too,
// if it `keeps_norm`.
struct LayerNorm {
  static constexpr const char* kName = "LayerNorm";
  BufferId residual = kNone;  // F32 [rows, width]
  BufferId delta = kNone;     // F32 [rows, width]
  VectorId weight = kNone, bias = kNone;
  BufferId out = kNone;      // `type` [rows, width]
  BufferId scratch = kNone;  // F32 [rows, width], unless it keeps the norm
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

// x += y, if there is one; then the RMS norm of each of the `heads` pieces of each row, in place.
// Without `weight` the sum stays.
struct NormRows {
  static constexpr const char* kName = "NormRows";
  BufferId x = kNone;  // F32 [rows, heads, width]
  BufferId y = kNone;  // on a device
  VectorId weight = kNone;
  int64_t heads = 1, width = 0;
  std::optional<float> eps = {};  // nullopt: Program::norm_eps
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(y, Access::kRead);
  }
};

// The first `width` numbers of each row times `factor`, or the one number of `vector`.
struct Scale {
  static constexpr const char* kName = "Scale";
  BufferId x = kNone;  // F32 [rows, width], or `stride` numbers apart
  int64_t width = 0;
  int64_t stride = 0;  // 0: width
  float factor = 1;
  VectorId vector = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// x += y.
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

// x = (x * x_factor + y) * sum_factor.
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

// Copies a drafting head's hidden rows of the step, as `type`.
struct TakeHidden {
  static constexpr const char* kName = "TakeHidden";
  BufferId out = kNone;  // [rows, width]
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
  }
};

// The RMS norms of two rows beside each other: [norm(x), norm(y)], as `type`. Without a weight a
// half is as it is.
struct JoinNorms {
  static constexpr const char* kName = "JoinNorms";
  BufferId x = kNone, y = kNone;  // F32 [rows, width]
  VectorId x_weight = kNone, y_weight = kNone;
  BufferId out = kNone;  // [rows, 2 * width]
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(y, Access::kRead);
    use(out, Access::kWrite);
  }
};

// Rows to columns [begin, begin + width) of the rows that the step hands on, `stride` numbers
// apart. Ranks have the same rows: the first one hands them on.
struct HandRows {
  static constexpr const char* kName = "HandRows";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0, begin = 0, stride = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
  }
};

// The rows whose results are wanted move to the front; the others are computed no further. After
// the last attention no row depends on another.
struct KeepRows {
  static constexpr const char* kName = "KeepRows";
  struct Kept {
    Columns columns = {};  // in bytes
    int64_t bytes = 0;
    // On a device, where rows move to: operators that name columns.buffer find them there.
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

// All columns of rows of which each rank has some.
struct Gather {
  static constexpr const char* kName = "Gather";
  enum class Cut {
    kRows,    // like the rows of a matrix of `count` rows
    kHeads,   // like the query heads of layer `count` of the whole model
    kMixer,   // like the heads of its mixer
    kLogits,  // like kRows, at the first rank alone
  };
  Cut cut = Cut::kRows;
  int64_t count = 0;
  ElementType type = ElementType::kF32;
  BufferId own = kNone, all = kNone;
  BufferId joined = kNone;  // on a device, room for the pieces of all ranks
  // On a device, of rows that a product reads: where it rounds whole rows, they are gathered in F32
  // in `all_f32`, and rounded to `all`.
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

// Rows of BF16 as a product reads them, if it rounds them. Devices.
struct Convert {
  static constexpr const char* kName = "Convert";
  BufferId x = kNone;       // BF16 [rows, width]; numbers that BF16 holds take its place
  BufferId narrow = kNone;  // E4M3 [rows, width]
  BufferId scales = kNone;  // F32 [rows]
  Reader reader = {};
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(narrow, Access::kWrite);
    use(scales, Access::kWrite);
  }
};

// --- Products and gates -------------------------------------------------------------------------

// y = W x + bias, and what the step's adapters add.
struct Project {
  static constexpr const char* kName = "Project";
  LinearId linear = kNone;
  TableId table = kNone;  // instead of `linear`: a head that is the embedding's table
  BufferId x = kNone;     // `x_type` [rows, k]
  ElementType x_type = ElementType::kF32;
  BufferId y = kNone;  // `y_type` [rows, n], y_stride numbers apart
  ElementType y_type = ElementType::kF32;
  int64_t n = 0, k = 0, y_stride = 0;
  int32_t lora = kNone;
  bool is_plain = false;      // inputs are neither rounded nor split
  bool finds_maxima = false;  // of the rows of y, if the step wants them
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

// x [rows, width, or twice that with a gate] to y [rows, width] of `type`.
struct GateMul {
  static constexpr const char* kName = "GateMul";
  Gate gate = Gate::kSilu;
  BufferId x = kNone;  // F32; its content is undefined afterwards
  BufferId y = kNone;
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  kernels::SwigluClamp clamp = {};
  // kRule: the rule; `numbers`: for kXielu, as in MlpWeights::activation.
  kernels::ActivationRule rule = {};
  bool is_gated = true;
  VectorId numbers = kNone;
  // Devices:
  ElementType x_type = ElementType::kF32;
  Reader reader = {};
  BufferId scales = kNone;   // F32 [rows], of rows that are rounded
  bool is_gathered = false;  // ranks gather y before rows are rounded as a whole
  Columns factors = {};      // in place of up: F32 rows
  ExpertsId biased = kNone;  // of experts, whose bias is added to x
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

// The experts of each row, and their weights. x is in F32: a choice between two experts that are
// nearly as good should not hang on a rounding.
struct Route {
  static constexpr const char* kName = "Route";
  MoeId moe = kNone;
  LinearId router = kNone;
  BufferId x = kNone;        // F32 [rows, width]
  BufferId logits = kNone;   // F32 [rows, experts]
  BufferId chosen = kNone;   // I32 [rows, top_k]
  BufferId weights = kNone;  // F32 [rows, top_k]
  VectorId choice_bias = kNone, factors = kNone;
  int64_t width = 0;
  int32_t lora = kNone;
  BufferId lora_scratch = kNone;  // on a device
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(lora_scratch, Access::kScratch);
    use(logits, Access::kScratch);
    use(chosen, Access::kWrite);
    use(weights, Access::kWrite);
  }
};

// y of the MLP that every row passes, times the sigmoid of one product of x. On a device there is
// no y, and CombineExperts applies the gates.
struct GateShared {
  static constexpr const char* kName = "GateShared";
  LinearId gate = kNone;
  BufferId x = kNone;      // F32 [rows, width]
  BufferId gates = kNone;  // F32 [rows]
  BufferId y = kNone;      // F32 [rows, y_width]
  int64_t width = 0, y_width = 0;
  int32_t lora = kNone;
  BufferId lora_scratch = kNone;  // on a device
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(lora_scratch, Access::kScratch);
    use(gates, Access::kWrite);
    use(y, Access::kUpdate);
  }
};

// The pairs of a row and an expert by expert (kernels/experts.h), and their rows of x.
struct GroupExperts {
  static constexpr const char* kName = "GroupExperts";
  MoeId moe = kNone;
  BufferId x = kNone;        // F32 [rows, width]
  BufferId chosen = kNone;   // I32 [rows, top_k]
  BufferId weights = kNone;  // F32 [rows, top_k]
  BufferId order = kNone;    // I32 [pairs], as the next
  BufferId place = kNone;
  BufferId row_begin = kNone;  // I32 [experts + 1]
  BufferId out = kNone;        // F32 [pairs, width], on a device as `reader` takes it
  int64_t width = 0;
  Reader reader = {};
  BufferId scales = kNone;  // F32 [pairs], of rows that are rounded
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

// The same product of every expert, of its rows.
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
  BufferId chosen = kNone;  // on a device
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

// The results of each row's experts, added up in the order of their logits.
struct CombineExperts {
  static constexpr const char* kName = "CombineExperts";
  MoeId moe = kNone;
  BufferId x = kNone;  // F32 [pairs, width]
  BufferId place = kNone, weights = kNone;
  BufferId sum = kNone;  // F32 [rows, width]
  bool adds = false;     // to what `sum` holds
  int64_t width = 0;
  // Devices:
  BufferId gates = kNone;   // of what `sum` holds, before the sigmoid
  BufferId chosen = kNone;  // where there are biases
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

// The scale and the soft cap of logits, in place, and their maxima where those of the product are
// not theirs.
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

// Rows to the memory of the step's results.
struct CopyResults {
  static constexpr const char* kName = "CopyResults";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
  }
};

// Scores of rows to the step's results: a linear layer [num_scores, width] in F64.
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

// Row i becomes the mean of the text of the i-th wanted row; a text has one.
struct MeanTexts {
  static constexpr const char* kName = "MeanTexts";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// The scores of an encoder's classifier (ClassifierWeights) to the step's results.
struct Classify {
  static constexpr const char* kName = "Classify";
  BufferId x = kNone;        // F32 [rows, width]
  BufferId scratch = kNone;  // as large
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
                 LatentAppend, ChoosePositions, AbsorbQueries, ExpandValues, Convolve, UpdateState,
                 GateStates, Route, GateShared, GroupExperts, ProjectExperts, CombineExperts,
                 FinishLogits, CopyResults, Score, MeanTexts, Classify, PlaceImages, AddImages,
                 TakePatches, AddPositions, Regroup, MergePatches, Clamp, Standardize, StoreImage>;

}  // namespace sluice::program
