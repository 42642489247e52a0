// Prints a program as text or JSON.
#pragma once

#include <string>

#include "base/json.h"
#include "models/program/cost.h"
#include "models/program/program.h"

namespace sluice::program {

// Returns an operator's name and the buffers that it reads and writes, in a form independent of the
// layer.
std::string LabelOf(const Program& program, const Op& op);

// Returns one line per operator: name, operands, shape, costs. Consecutive identical layers are
// printed once. They are followed by the total and by the memory of the buffers.
std::string Print(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes);

// Returns one object per operator, for all layers.
json::Value ToJson(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes);

}  // namespace sluice::program
