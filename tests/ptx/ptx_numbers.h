// Numbers of PTX: conversions, and the arithmetic of 16-bit floats, implemented from the ISA's
// description.
#pragma once

#include <cstdint>

#include "ptx_program.h"

namespace sluice::ptx {

// Return the value of a code; NaN for NaN.
double F16ToDouble(uint16_t code);
double Bf16ToDouble(uint16_t code);
double E4m3ToDouble(uint8_t code);
// Round to nearest, ties to even; NaN becomes the canonical NaN.
uint16_t DoubleToF16(double value);
uint16_t DoubleToBf16(double value);

// Convert numbers to bits and back; NaNs become those that the hardware produces.
uint64_t BitsOfF32(float value);
uint64_t BitsOfF64(double value);
float F32Of(uint64_t bits);
double F64Of(uint64_t bits);

// Compute an instruction from arguments a, b, c (as many as it has), given as bits of its types.
uint64_t Arithmetic(const Instruction& instruction, uint64_t a, uint64_t b, uint64_t c);
bool Holds(const Instruction& instruction, uint64_t a, uint64_t b);
uint64_t Convert(const Instruction& instruction, uint64_t a, uint64_t b);
uint64_t PermuteBytes(uint64_t a, uint64_t b, uint64_t selector);

inline int64_t SignedOf(uint64_t bits, int width) {
  return static_cast<int64_t>(bits << (64 - width)) >> (64 - width);
}
inline uint64_t Masked(uint64_t bits, int width) {
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

}  // namespace sluice::ptx
