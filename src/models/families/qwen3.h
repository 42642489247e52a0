// What Qwen3-VL's families share.
#pragma once

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Reads the axes of rope and the levels that the tower adds after the first layers.
Status ReadQwen3VlImages(const JsonFields& fields, ModelConfig& config);

}  // namespace sluice
