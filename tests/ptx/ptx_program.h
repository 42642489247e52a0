// Reads kernels from the PTX that nvcc generates, as lists of instructions. Written only from
// NVIDIA's "Parallel Thread Execution ISA". Supports what nvcc generates for this project's
// kernels, and refuses everything else with a message that names it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::ptx {

enum class Op : uint8_t {
  kAbs,
  kAdd,
  kAnd,
  kAtomAdd,
  kAtomExch,
  kAwaitGrids,
  kBarrier,
  kBarrierArrive,
  kBfi,
  kBfind,
  kBra,
  kBrev,
  kBulkCopy,
  kCommit,
  kCopyAsync,
  kCvt,
  kDiv,
  kElect,
  kEx2,
  kFma,
  kLd,
  kLdmatrix,
  kLetGrids,
  kMad,
  kMax,
  kMbarrierArrive,
  kMbarrierExpect,  // expects bytes, and arrives
  kMbarrierFence,  // of initialized mbarriers
  kMbarrierInit,
  kMbarrierInvalidate,
  kMbarrierWait,
  kMembar,
  kMin,
  kMma,
  kMov,
  kMul,
  kNeg,
  kNot,
  kOr,
  kParamAddress,
  kPopc,
  kPrmt,
  kProduct,  // of a warpgroup
  kProductCommit,
  kProductFence,
  kProductWait,
  kProxyFence,
  kRcp,
  kRem,
  kRet,
  kRsqrt,
  kSelp,
  kSetMaxRegisters,
  kSetp,
  kShfl,
  kShl,
  kShr,
  kSqrt,
  kSt,
  kStmatrix,
  kSub,
  kTensorCopy,
  kVote,
  kWaitGroup,
  kWarpBarrier,
  kXor
};

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kB32,
  kU32,
  kS32,
  kB64,
  kU64,
  kS64,
  kF16,
  kF32,
  kF64,
  kF16x2,
  kBf16,
  kBf16x2,
  kE4m3,
  kE4m3x2
};
int BitsOfType(Type type);
bool IsSigned(Type type);

enum class Space : uint8_t { kNone, kGlobal, kShared, kLocal, kParam };
enum class Rounding : uint8_t { kNearest, kZero, kDown };
enum class Shape : uint8_t { kNone, kUp, kDown, kButterfly, kIndex };

// Comparisons of setp. Those that end in U are true if a number is NaN.
enum class Compare : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};

struct Operand {
  enum class Kind : uint8_t { kNone, kRegister, kConstant, kSpecial } kind = Kind::kNone;
  bool is_negated = false;  // a predicate
  uint32_t index = 0;       // index of the register
  uint64_t value = 0;       // a constant's bits; an address's offset; or a special register
};

// Special registers.
enum : uint64_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ
};

struct Instruction {
  Op op;
  Type type = Type::kNone;  // the last type in its name; for cvt and mma, the type of the result
  Type from = Type::kNone;  // for cvt: the type of the argument; for mma: the type of a and b
  Space space = Space::kNone;
  Rounding rounding = Rounding::kNearest;
  Shape shape = Shape::kNone;
  Compare compare = Compare::kEq;
  bool is_wide = false, is_high = false, is_saturated = false, to_integer = false;
  bool is_transposed = false, shifts_amount = false, flushes = false;
  Operand guard;                           // a predicate; kNone: always
  std::vector<Operand> to, from_operands;  // results; arguments (of an address: register, constant)
  uint32_t target = 0;   // for a branch: the number of the instruction to continue at
  uint32_t columns = 0;  // of the result of a warpgroup's product
  int line = 0;
};

struct Variable {
  std::string name;
  std::vector<unsigned char> bytes;
};

struct Kernel {
  std::string name;  // the name in the source: "void sluice::cuda::Kernel<1>(...)"
  std::string symbol;
  uint32_t num_registers = 0;
  uint32_t local_bytes = 0;
  bool has_products = false;  // of warpgroups, whose registers need fences and waits
  std::vector<Instruction> instructions;
};

struct Program {
  std::map<std::string, Kernel> kernels;  // keyed by `name`
  // Variables of all files, in global memory until the program ends.
  std::map<std::string, std::unique_ptr<Variable>> globals;
};

// Adds the kernels of a file. Ends the program with a message if it cannot read the file.
void ReadFile(const std::string& path, Program& program);

// Returns the name "_ZN..." as it is written in the source.
std::string Demangled(const std::string& symbol);

}  // namespace sluice::ptx
