// What operators (op.h) name: buffers and weights as handles, and how rows are rounded for
// products.
#pragma once

#include <cstdint>

#include "tensor/element_type.h"

namespace sluice::program {

// Index into the table of that name in Program; kNone: there is none.
using BufferId = int32_t;
using LinearId = int32_t;     // Program::linears
using ExpertsId = int32_t;    // Program::experts
using VectorId = int32_t;     // Program::vectors
using TableId = int32_t;      // Program::tables
using AttentionId = int32_t;  // Program::attentions
using MoeId = int32_t;        // Program::moes
using MixerId = int32_t;      // Program::mixers
inline constexpr int32_t kNone = -1;

// What an operator does to a buffer. kWrite: all that is read later of what it held.
enum class Access { kRead, kWrite, kUpdate, kScratch };

// Numbers [rows, width] inside a buffer: number `begin` of row r is at rows_before * rows of the
// step + r * stride + begin.
struct Columns {
  BufferId buffer = kNone;
  int64_t rows_before = 0;
  int64_t begin = 0;
  int64_t stride = 0;
};

// Which product reads rows: it decides, on a device, how they are rounded when they are written.
struct Reader {
  LinearId linear = kNone;
  ExpertsId experts = kNone;
};

// Memory in which the CPU rounds or splits the inputs of a product; kNone: it does neither.
struct RoundingBuffers {
  BufferId rounded = kNone;  // the rows as integers, in F32, or as two rows of BF16
  BufferId scales = kNone;   // F32, of the rows
  BufferId pairs = kNone;    // the results of both halves
};

// What a product on a device has besides, kNone on the CPU.
struct DeviceInputBuffers {
  BufferId narrow = kNone;   // where Convert wrote what x is rounded to, if it is of E4M3
  BufferId scales = kNone;   // F32 [rows], of rows that are rounded
  BufferId ordered = kNone;  // the rows in the order of the matrix's columns
  BufferId scratch = kNone;
  BufferId counters = kNone;  // zeros between products
  BufferId lora = kNone;      // what adapters make of the rows
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

// The gate of an MLP, from rows of gate and up beside each other, or what stands in its place.
enum class Gate {
  kSilu,           // silu(gate) * up
  kGeluTanh,       // gelu(gate) * up
  kGeluErf,        // the same with erf
  kClampedSwiglu,  // kernels/clamped_swiglu.h
  kPlainGelu,      // gelu(x), with erf: there is no gate
  kPlainRelu,
  kRule,  // kernels/activation.h, with a gate or without. The CPU.
};

}  // namespace sluice::program
