// Loops that consist of multiply-adds. Each runs `rounds` rounds and returns the floating-point
// operations done. Each is compiled for its own instructions: call it only on a CPU that has them.
#pragma once

#include <stdint.h>

namespace sluice::peak_loops {

double NeonFma(int64_t rounds);
double NeonBf16(int64_t rounds);

}  // namespace sluice::peak_loops
