// Determines whether two machines compute bit-identical results.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// A hash of the results of some operators and of the math library, for fixed inputs, with the
// instruction set in use. Ranks with different fingerprints (because of other libraries or
// compilers) would not compute results bit-identical to a single rank.
uint64_t NumericFingerprint();
// The fingerprint without log1p and tanh, whose results differ between the math libraries of x86-64
// and aarch64. It is for models that use neither function.
uint64_t PortableFingerprint();

}  // namespace sluice::kernels
