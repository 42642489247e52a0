// Whether two machines compute alike.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// A hash of the results of some operators and of the mathematical library, for fixed inputs, with
// the instruction set in use. Ranks whose fingerprints differ (other libraries, other
// compilers) would not give the bits of one rank.
uint64_t NumericFingerprint();

}  // namespace sluice::kernels
