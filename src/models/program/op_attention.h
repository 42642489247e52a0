// The operators (op.h) by which tokens see those before them: attention, latent attention, and
// layers that keep a state.
#pragma once

#include <cstdint>

#include "models/program/operands.h"
#include "tensor/element_type.h"

namespace sluice::program {

// --- Attention ----------------------------------------------------------------------------------

// Norms, rope and temperature of q and k, from x [rows, q, k, v], which keeps q; k and v are
// appended to the cache, where the layer has its own.
struct RopeAppend {
  static constexpr const char* kName = "RopeAppend";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  int64_t model_layer = 0;  // of the whole model
  BufferId x = kNone;
  BufferId cos_sin = kNone;
  VectorId q_norm = kNone, k_norm = kNone, v_norm = kNone;
  BufferId own_qk = kNone, whole_qk = kNone;  // of ranks that norm whole rows
  float k_scale = 1, v_scale = 1;
  // Devices:
  ElementType x_type = ElementType::kF32;
  BufferId q = kNone;  // BF16 [rows, q_width]
  // Norms of whole rows: squares of heads of all ranks, and of this one's.
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

// Appends keys and values that another stage handed over: F32 [rows, 2, width].
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

// From q [rows, q, k, v], with latent attention [rows, q], and the cache.
struct Attend {
  static constexpr const char* kName = "Attend";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  BufferId q = kNone;
  BufferId out = kNone;  // `type` [rows, heads, value_dim]
  ElementType type = ElementType::kF32;
  bool allows_bf16 = false;  // whether queries and weights may be rounded to BF16
  BufferId chosen = kNone;   // I32 [rows, top_k]: positions that rows attend to; kNone: all
  BufferId scratch = kNone;
  int64_t scratch_bytes = 0;
  VectorId sinks = kNone;
  float k_scale = 1, v_scale = 1;
  // Every token sees all tokens of its sequence, or those at most `reach` away, if that is not 0.
  bool is_bidirectional = false;
  int32_t reach = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(q, Access::kRead);
    use(chosen, Access::kRead);
    use(scratch, Access::kScratch);
    use(out, Access::kWrite);
  }
};

// Latent attention (LatentSpec), from x [rows, first_width]: norms the latent vector, rotates the
// shared key, and appends both to the cache. If q is made from a vector, its norm is written to
// `q`.
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

// The positions that each row attends to, as an indexer chooses them (IndexerSpec). k is normed,
// and rotated as q is, and appended to the cache beside the keys.
struct ChoosePositions {
  static constexpr const char* kName = "ChoosePositions";
  AttentionId attention = kNone;
  int64_t cache_layer = 0;
  BufferId q = kNone;        // F32 [rows, heads, head_dim]
  BufferId k = kNone;        // F32 [rows, head_dim]
  BufferId weights = kNone;  // F32 [rows, heads]
  VectorId k_norm = kNone, k_norm_bias = kNone;
  BufferId cos_sin = kNone;
  BufferId chosen = kNone;  // I32 [rows, top_k]
  BufferId scratch = kNone;
  int64_t scratch_bytes = 0;
  float k_scale = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(q, Access::kUpdate);
    use(k, Access::kUpdate);
    use(weights, Access::kRead);
    use(cos_sin, Access::kRead);
    use(scratch, Access::kScratch);
    use(chosen, Access::kWrite);
  }
};

// Heads of q [rows, heads, nope_dim + rope_dim] as attention reads them, the matrices that make
// keys of the latent vector applied to them, and rotated: out [rows, heads, kv_rank + rope_dim].
struct AbsorbQueries {
  static constexpr const char* kName = "AbsorbQueries";
  AttentionId attention = kNone;
  ExpertsId key_up = kNone;
  Columns q = {};  // F32
  BufferId cos_sin = kNone;
  BufferId out = kNone;  // F32
  template <typename Use>
  void Operands(Use&& use) const {
    use(q.buffer, Access::kRead);
    use(cos_sin, Access::kRead);
    use(out, Access::kWrite);
  }
};

// The values of heads of what they attended to, x [rows, heads, kv_rank]: y [rows, heads,
// value_dim], and the same of `type` in `out`, if there is one.
struct ExpandValues {
  static constexpr const char* kName = "ExpandValues";
  AttentionId attention = kNone;
  ExpertsId value_up = kNone;
  BufferId x = kNone, y = kNone;  // F32
  BufferId out = kNone;
  ElementType type = ElementType::kF32;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(y, Access::kWrite);
    use(out, Access::kWrite);
  }
};

// --- Mixers (MixerSpec) -------------------------------------------------------------------------

// The convolution of a mixer, in place: of its channels, the first numbers of each row of x. Of a
// short convolution, whose rows are [B, C, x]: out = C * convolution(B * x). Reads and updates the
// tails of the step's sequences.
struct Convolve {
  static constexpr const char* kName = "Convolve";
  MixerId mixer = kNone;
  int64_t cache_layer = 0;
  BufferId x = kNone;  // F32 [rows, stride]
  int64_t stride = 0;
  VectorId weight = kNone, bias = kNone;  // [conv_width, channels], [channels]
  BufferId out = kNone;                   // `type` [rows, channels], of a short convolution
  ElementType type = ElementType::kF32;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(out, Access::kWrite);
  }
};

// The recurrence of a mixer over rows [q, k, v, z, ...] of x, where the results take the place of
// v; of Mamba-2 q and k are C and B, and v is x. Reads and updates the matrices of the step's
// sequences.
struct UpdateState {
  static constexpr const char* kName = "UpdateState";
  MixerId mixer = kNone;
  int64_t cache_layer = 0;
  BufferId x = kNone;  // F32 [rows, stride]
  int64_t stride = 0;
  // What decay and rate of a head are made of: F32 rows of [b, a], or of steps.
  Columns steps = {};
  Columns decays = {};  // MixerSpec::decays_keys, in place of a: F32 rows of [num_heads, key_dim]
  BufferId gates = kNone;                                   // F32 [rows, decays, rates]
  VectorId a_log = kNone, step_bias = kNone, skip = kNone;  // as MixerWeights
  template <typename Use>
  void Operands(Use&& use) const {
    use(steps.buffer, Access::kRead);
    use(decays.buffer, Access::kRead);
    use(gates, Access::kScratch);
    use(x, Access::kUpdate);
  }
};

// The results of a mixer, normed and gated by z: out [rows, values_width] of x [rows, q, k, v,
// ...].
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

// x times the sigmoids, or softpluses, of as many gates as a row has, each of which serves the same
// count of neighbours.
struct GateAttended {
  static constexpr const char* kName = "GateAttended";
  BufferId x = kNone;  // `type` [rows, width]
  ElementType type = ElementType::kF32;
  BufferId gates = kNone;  // F32 [rows, num_gates]
  int64_t width = 0, num_gates = 0;
  bool is_softplus = false;
  VectorId bias = kNone;  // added to the gates before, each number to as many neighbours
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
    use(gates, Access::kRead);
  }
};

// --- Heads, before and after attention ----------------------------------------------------------

// Numbers of x, kept within [-limit, limit].
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

// Layer norms of heads [rows, heads, width], in place.
struct NormHeads {
  static constexpr const char* kName = "NormHeads";
  Columns x = {};  // F32
  int64_t heads = 0, width = 0;
  VectorId weight = kNone, bias = kNone;  // [width], or [heads, width] where `has_each`
  bool has_each = false;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x.buffer, Access::kUpdate);
  }
};

// Heads [rows, heads, from_width] of `from` as [rows, heads, to_width] of `to`: cut off, or
// followed by zeros. Both may begin at the same number if heads become wider.
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

// out = the RMS norm of x, as a product reads it.
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
