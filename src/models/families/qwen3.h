// Functions that Qwen3-VL's families share.
#pragma once

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Reads the axes of RoPE, and the number of layers after which the tower's rows are added.
Status ReadQwen3VlImages(const JsonFields& fields, ModelConfig& config);

}  // namespace sluice
