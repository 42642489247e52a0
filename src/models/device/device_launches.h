// Counts what a device executes for a program.
#pragma once

#include <cstdint>

#include "models/device/device_weights.h"
#include "models/program/program.h"

namespace sluice {

// Returns an estimate of the number of operations (kernels and copies) that a step of `rows` rows
// enqueues if all its rows have results and it has neither adapters nor images, as in steps that
// are captured as graphs. `max_context`: ModelOptions::max_context. A product counts as two: vendor
// libraries may launch a second kernel, as may our own kernels that pack rows or scale results.
// With only our own kernels the estimate is an upper bound. A product by a library may enqueue more
// than two: weights are expanded in chunks, and parts with different scales take a call each.
int64_t LaunchesOf(const program::Program& program, const DeviceProgramWeights& weights,
                   int64_t rows, int64_t max_context);

}  // namespace sluice
