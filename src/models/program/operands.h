// Operands of operators (op.h): handles of buffers and weights, and the rounding of input rows.
#pragma once

#include <cstdint>

#include "tensor/element_type.h"

namespace sluice::program {

// Index into the Program's table of buffers; kNone: no buffer.
using BufferId = int32_t;
using LinearId = int32_t;     // index into Program::linears
using ExpertsId = int32_t;    // index into Program::experts
using VectorId = int32_t;     // index into Program::vectors
using TableId = int32_t;      // index into Program::tables
using AttentionId = int32_t;  // index into Program::attentions
using MoeId = int32_t;        // index into Program::moes
using MixerId = int32_t;      // index into Program::mixers
inline constexpr int32_t kNone = -1;

// How an operator uses a buffer. kWrite: overwrites everything that is read later.
enum class Access { kRead, kWrite, kUpdate, kScratch };

// A matrix [rows, width] within a buffer: row r begins at element rows_before * (rows of the step)
// + r * stride + begin.
struct Columns {
  BufferId buffer = kNone;
  int64_t rows_before = 0;
  int64_t begin = 0;
  int64_t stride = 0;
};

// The product that reads the rows which an operator writes. On a device, it determines how they are
// rounded when they are written.
struct Reader {
  LinearId linear = kNone;
  ExpertsId experts = kNone;
};

// CPU buffers for rounding or splitting a product's inputs; kNone: not needed.
struct RoundingBuffers {
  BufferId rounded = kNone;  // rows as integers, as F32, or as pairs of BF16 rows
  BufferId scales = kNone;   // F32, one per row
  BufferId pairs = kNone;    // results for both BF16 halves of each row
};

// Additional buffers of a product on a device; kNone on the CPU.
struct DeviceInputBuffers {
  BufferId narrow = kNone;   // E4M3 rows that Convert wrote
  BufferId scales = kNone;   // F32 [rows]: scales of rounded rows
  BufferId ordered = kNone;  // inputs in the order of the matrix's columns
  BufferId scratch = kNone;
  BufferId counters = kNone;  // counters; all are zero between two products
  BufferId lora = kNone;      // adapters' intermediate results
  template <typename Use>
  void Operands(Use&& use) const {
    use(narrow, Access::kRead);
    use(scales, Access::kRead);
    use(ordered, Access::kScratch);
    use(scratch, Access::kScratch);
    use(counters, Access::kUpdate);
    use(lora, Access::kScratch);
  }
};

// The activation of an MLP, for rows that contain gate and up, or without a gate.
enum class Gate {
  kSilu,           // silu(gate) * up
  kGeluTanh,       // gelu(gate) * up
  kGeluErf,        // gelu(gate) * up, with erf
  kClampedSwiglu,  // see kernels/clamped_swiglu.h
  kPlainGelu,      // gelu(x), with erf, without a gate
  kPlainRelu,
  kRule,  // see kernels/activation.h; with or without a gate; CPU only
};

}  // namespace sluice::program
