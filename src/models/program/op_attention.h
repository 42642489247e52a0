// The operators (op.h) through which tokens depend on earlier tokens: attention, latent attention,
// and layers with states.
#pragma once

#include <cstdint>

#include "kernels/rope.h"
#include "models/program/operands.h"
#include "tensor/element_type.h"

namespace sluice::program {

// --- Attention ----------------------------------------------------------------------------------

// Applies norms and RoPE to q and k in x [rows, q, k, v], a norm to v if the layer has one, and the
// temperature to q. q stays in x. k and v are appended to the cache if the layer has its own keys
// and values.
struct RopeAppend {
  static constexpr const char* kName = "RopeAppend";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  int64_t model_layer = 0;  // index of the layer in the whole model
  BufferId x = kNone;
  BufferId cos_sin = kNone;
  VectorId q_norm = kNone, k_norm = kNone, v_norm = kNone;
  BufferId own_qk = kNone, whole_qk = kNone;  // only for ranks that normalize whole rows together
  float k_scale = 1, v_scale = 1;
  // Used only on devices:
  ElementType x_type = ElementType::kF32;
  BufferId q = kNone;  // BF16 [rows, q_width]
  // For norms over whole rows: sums of squares of the heads of all ranks, and of this rank's heads.
  BufferId q_squares = kNone, k_squares = kNone, own_q_squares = kNone, own_k_squares = kNone;
  BufferId joined = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(cos_sin, Access::kRead);
    for (const BufferId one :
         {own_qk, whole_qk, q_squares, k_squares, own_q_squares, own_k_squares, joined})
      use(one, Access::kScratch);
    use(q, Access::kWrite);
  }
};

// Appends keys and values that were received from another stage: F32 [rows, 2, width].
struct AppendReceived {
  static constexpr const char* kName = "AppendReceived";
  int64_t cache_layer = 0;
  Columns keys = {};
  int64_t width = 0;
  float k_scale = 1, v_scale = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(keys.buffer, Access::kRead);
  }
};

// Computes attention of the queries in [rows, q, k, v] (latent attention: [rows, q]) to the cache.
struct Attend {
  static constexpr const char* kName = "Attend";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  BufferId q = kNone;
  BufferId out = kNone;  // `type` [rows, heads, value_dim]
  ElementType type = ElementType::kF32;
  bool allows_bf16 = false;  // whether queries and attention weights may be rounded to BF16
  // From ChoosePositions or ChooseBlocks; kNone: rows attend to all positions.
  BufferId chosen = kNone;
  // From ListPositions, with `chosen`: I32 [rows], the lengths of the lists, which hold up to
  // `most_chosen` rows of the cache (KvLayout::Rows).
  BufferId counts = kNone;
  int32_t most_chosen = 0;
  BufferId scratch = kNone;
  int64_t scratch_bytes = 0;
  VectorId sinks = kNone;
  float k_scale = 1, v_scale = 1;
  // Whether every token attends to all tokens of its sequence or, if `reach` is not 0, only to
  // tokens at a distance of at most `reach`.
  bool is_bidirectional = false;
  int32_t reach = 0;
  // On a device, if only the next Convert operator reads `out`: that operator's `narrow` and
  // `scales`. A step of single tokens writes them directly, instead of `out`.
  BufferId narrow = kNone, scales = kNone;
  template <typename Use>
  void Operands(Use&& use) const {
    use(q, Access::kRead);
    use(chosen, Access::kRead);
    use(counts, Access::kRead);
    use(scratch, Access::kScratch);
    use(out, Access::kWrite);
    use(narrow, Access::kWrite);
    use(scales, Access::kWrite);
  }
};

// The first part of latent attention (LatentSpec). x: [rows, first_width]. Applies an RMS norm to
// the latent vector, rotates the key that all heads share, and appends both to the cache. If
// queries are computed from a compressed vector (q_rank elements), applies an RMS norm to that
// vector and writes the result to `q`.
struct LatentAppend {
  static constexpr const char* kName = "LatentAppend";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  BufferId x = kNone;  // F32
  BufferId cos_sin = kNone;
  VectorId q_norm = kNone, k_norm = kNone;
  BufferId q = kNone;  // `q_type` [rows, q_rank]
  ElementType q_type = ElementType::kF32;
  float k_scale = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(cos_sin, Access::kRead);
    use(q, Access::kWrite);
  }
};

// Chooses the positions to which each row attends (IndexerSpec). k is normalized, rotated like q,
// and appended to the cache next to the keys.
struct ChoosePositions {
  static constexpr const char* kName = "ChoosePositions";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  BufferId q = kNone;        // F32 [rows, heads, head_dim]
  BufferId k = kNone;        // F32 [rows, head_dim]
  BufferId weights = kNone;  // F32 [rows, heads]
  VectorId k_norm = kNone, k_norm_bias = kNone;
  BufferId cos_sin = kNone;
  BufferId chosen = kNone;  // I32 [rows, top_k]: positions; on a device, slots of the cache
  BufferId scratch = kNone;
  int64_t scratch_bytes = 0;
  float k_scale = 1;
  BufferId narrow_q = kNone;  // only on a device: BF16 [rows, heads, head_dim]
  template <typename Use>
  void Operands(Use&& use) const {
    use(q, Access::kUpdate);
    use(k, Access::kUpdate);
    use(weights, Access::kRead);
    use(cos_sin, Access::kRead);
    use(scratch, Access::kScratch);
    use(narrow_q, Access::kScratch);
    use(chosen, Access::kWrite);
  }
};

// Chooses the blocks of positions to which each KV head of each row attends (BlockIndexerSpec).
// Heads of q, and k, are RMS-normalized and rotated; k is appended to the cache next to keys and
// values.
struct ChooseBlocks {
  static constexpr const char* kName = "ChooseBlocks";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  BufferId q = kNone;  // F32 [rows, heads, head_dim]
  BufferId k = kNone;  // F32 [rows, head_dim]
  VectorId q_norm = kNone, k_norm = kNone;
  BufferId cos_sin = kNone;
  BufferId chosen = kNone;  // I32 [rows, heads, top_k]
  BufferId scratch = kNone;
  int64_t scratch_bytes = 0;
  float k_scale = 1, v_scale = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(q, Access::kUpdate);
    use(k, Access::kUpdate);
    use(cos_sin, Access::kRead);
    use(scratch, Access::kScratch);
    use(chosen, Access::kWrite);
  }
};

// Multiplies q [rows, heads, nope_dim + rope_dim] by the matrices that compute keys from the latent
// vector, and rotates the remaining elements. `out` [rows, heads, kv_rank + rope_dim] is the input
// of attention.
struct AbsorbQueries {
  static constexpr const char* kName = "AbsorbQueries";
  AttentionId attention = kNone;
  ExpertsId key_up = kNone;
  Columns q = {};  // F32
  BufferId cos_sin = kNone;
  BufferId out = kNone;  // F32; on a device BF16
  template <typename Use>
  void Operands(Use&& use) const {
    use(q.buffer, Access::kRead);
    use(cos_sin, Access::kRead);
    use(out, Access::kWrite);
  }
};

// Computes the heads' values from their weighted sums of latent vectors x [rows, heads, kv_rank]: y
// [rows, heads, value_dim], and a copy as `type` in `out`, if `out` is set.
struct ExpandValues {
  static constexpr const char* kName = "ExpandValues";
  AttentionId attention = kNone;
  ExpertsId value_up = kNone;
  BufferId x = kNone, y = kNone;  // F32; on a device x is BF16, and there is no y
  BufferId out = kNone;
  ElementType type = ElementType::kF32;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(y, Access::kWrite);
    use(out, Access::kWrite);
  }
};

// --- Compressed attention (CompressedSpec) -------------------------------------------------------

// Rotates the last `rotated` elements of heads [rows, heads, head_dim], in place; with
// `is_inverse`, in the opposite direction.
struct RotateHeads {
  static constexpr const char* kName = "RotateHeads";
  BufferId x = kNone;  // F32
  BufferId cos_sin = kNone;
  int64_t heads = 0, head_dim = 0, rotated = 0;
  kernels::RopeStyle style = kernels::RopeStyle::kInterleaved;
  bool is_inverse = false;
  template <typename Use>
  void Operands(Use&& use) const {
    use(cos_sin, Access::kRead);
    use(x, Access::kUpdate);
  }
};

// Computes the entries of the token groups that end in this step, and stores them in the cache.
// With `is_index`, they are the indexer's entries. Reads and updates the states of the step's
// sequences.
struct CompressKeys {
  static constexpr const char* kName = "CompressKeys";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  bool is_index = false;
  BufferId x = kNone;                   // F32 [rows, 2, projections, dim]: kernels/compress.h
  VectorId bias = kNone, norm = kNone;  // see AttentionWeights::Compressor
  float k_scale = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Lists the rows of the cache (KvLayout::Rows) to which each row of the step attends: first
// entries, then tokens of the window, both in ascending order. With an indexer, lists only the
// chosen entries.
struct ListPositions {
  static constexpr const char* kName = "ListPositions";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  BufferId q = kNone;         // F32 [rows, heads, index_dim], or kNone: no indexer
  BufferId weights = kNone;   // F32 [rows, heads]
  BufferId selected = kNone;  // I32 [rows, top_k]: the indexer's entries
  BufferId list = kNone;      // I32 [rows, most]
  BufferId counts = kNone;    // I32 [rows]
  int32_t most = 0;
  BufferId scratch = kNone;
  int64_t scratch_bytes = 0;
  float k_scale = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(q, Access::kRead);
    use(weights, Access::kRead);
    use(selected, Access::kScratch);
    use(scratch, Access::kScratch);
    use(list, Access::kWrite);
    use(counts, Access::kWrite);
  }
};

// Multiplies each of `groups` groups of consecutive columns of x [rows, groups * k] by its matrix
// [n, k]: y [rows, groups * n].
struct ProjectGroups {
  static constexpr const char* kName = "ProjectGroups";
  ExpertsId matrices = kNone;
  BufferId x = kNone, y = kNone;  // F32
  int64_t groups = 0, n = 0, k = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(y, Access::kWrite);
  }
};

// --- Mixers (MixerSpec) -------------------------------------------------------------------------

// Computes the convolution of a mixer, in place. Its channels are the first elements of each row of
// x. For a short convolution, rows are [B, C, x], and out = C * convolution(B * x). Reads and
// updates the tails of the step's sequences.
struct Convolve {
  static constexpr const char* kName = "Convolve";
  MixerId mixer = kNone;
  int64_t cache_layer = 0;
  BufferId x = kNone;  // F32 [rows, stride]
  int64_t stride = 0;
  VectorId weight = kNone, bias = kNone;  // [conv_width, channels], [channels]
  // For a short convolution: `type` [rows, channels]. On a device it is always set: for the other
  // mixers it is F32, and x does not change.
  BufferId out = kNone;
  ElementType type = ElementType::kF32;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(out, Access::kWrite);
  }
};

// Computes the recurrence of a mixer over rows [q, k, v, z, ...] of x; the results replace v. For
// Mamba-2, q, k and v are C, B and x. Reads and updates the state matrices of the step's sequences.
struct UpdateState {
  static constexpr const char* kName = "UpdateState";
  MixerId mixer = kNone;
  int64_t cache_layer = 0;
  BufferId x = kNone;  // F32 [rows, stride]
  int64_t stride = 0;
  // F32, per row: b of every head (input of its rate), then a of every head (input of its decay).
  // Mamba-2: one step input per head. With MixerSpec::decays_keys: only b.
  Columns steps = {};
  // With MixerSpec::decays_keys, used instead of a: F32 rows [num_heads, key_dim].
  Columns decays = {};
  BufferId gates = kNone;                                   // F32 [rows, decays, rates]
  VectorId a_log = kNone, step_bias = kNone, skip = kNone;  // see MixerWeights
  template <typename Use>
  void Operands(Use&& use) const {
    use(steps.buffer, Access::kRead);
    use(decays.buffer, Access::kRead);
    use(gates, Access::kScratch);
    use(x, Access::kUpdate);
  }
};

// Normalizes the results of a mixer and gates them by z. Reads x [rows, q, k, v, ...], writes out
// [rows, values_width].
struct GateStates {
  static constexpr const char* kName = "GateStates";
  MixerId mixer = kNone;
  BufferId x = kNone;  // F32 [rows, stride]; its content is undefined afterwards
  int64_t stride = 0;
  Columns z = {};  // F32; its content is undefined afterwards
  VectorId norm = kNone;
  BufferId out = kNone;
  ElementType type = ElementType::kF32;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    if (z.buffer != x) use(z.buffer, Access::kUpdate);
    use(out, Access::kWrite);
  }
};

// Multiplies x by the sigmoids (or softplus values) of gates. Each gate applies to width /
// num_gates consecutive elements.
struct GateAttended {
  static constexpr const char* kName = "GateAttended";
  BufferId x = kNone;  // `type` [rows, width]
  ElementType type = ElementType::kF32;
  BufferId gates = kNone;  // F32 [rows, num_gates]
  int64_t width = 0, num_gates = 0;
  bool is_softplus = false;
  // Added to the gates; an element applies to num_gates / size consecutive gates.
  VectorId bias = kNone;
  int64_t num_biases = 0;
  // Used only on devices: the gates' type, and the number of elements from one row of gates to the
  // next (0: num_gates).
  ElementType gates_type = ElementType::kF32;
  int64_t gates_stride = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(gates, Access::kRead);
  }
};

// --- Heads, before and after attention ----------------------------------------------------------

// Clamps elements of x to [-limit, limit].
struct LimitRows {
  static constexpr const char* kName = "LimitRows";
  Columns x = {};  // F32
  int64_t width = 0;
  float limit = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x.buffer, Access::kUpdate);
  }
};

// Applies layer norms to heads [rows, heads, width], in place.
struct NormHeads {
  static constexpr const char* kName = "NormHeads";
  Columns x = {};  // F32
  int64_t heads = 0, width = 0;
  VectorId weight = kNone, bias = kNone;  // [width], or [heads, width] with `has_each`
  bool has_each = false;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x.buffer, Access::kUpdate);
  }
};

// Copies heads [rows, heads, from_width] to [rows, heads, to_width]. Heads are truncated, or padded
// with zeros. `from` and `to` may begin at the same element if heads become wider.
struct CopyHeads {
  static constexpr const char* kName = "CopyHeads";
  Columns from = {}, to = {};  // `type`
  ElementType type = ElementType::kF32;
  int64_t heads = 0, from_width = 0, to_width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    if (from.buffer != to.buffer) use(from.buffer, Access::kRead);
    use(to.buffer, Access::kUpdate);
  }
};

// Computes out = RMS norm of x, as `type`.
struct NormTo {
  static constexpr const char* kName = "NormTo";
  BufferId x = kNone;  // F32 [rows, width]
  VectorId weight = kNone;
  BufferId out = kNone;  // `type` [rows, width]
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(out, Access::kWrite);
  }
};

}  // namespace sluice::program
