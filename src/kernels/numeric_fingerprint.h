// Determines whether two machines compute the same bits.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// A hash of the results of some operators and of the math library, for fixed inputs, with the
// instruction set in use. Ranks with different fingerprints (because of other libraries or
// compilers) would not compute the same bits as a single rank.
uint64_t NumericFingerprint();
// The fingerprint without log1p and tanh, whose results differ between the math libraries of x86-64
// and aarch64. It is for models that use neither function.
uint64_t PortableFingerprint();

}  // namespace sluice::kernels
