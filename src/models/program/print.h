// A program as text, for people, and as JSON.
#pragma once

#include <string>

#include "base/json.h"
#include "models/program/cost.h"
#include "models/program/program.h"

namespace sluice::program {

// An operator by its name and the buffers that it reads and writes: alike in layers that are alike.
std::string LabelOf(const Program& program, const Op& op);

// One line an operator: its name, what it reads and writes, its shape, its costs. Layers that are
// alike are written once. Then the sum, and the memory of the buffers.
std::string Print(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes);

// An object an operator, of all layers.
json::Value ToJson(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes);

}  // namespace sluice::program
