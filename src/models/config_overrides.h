// --hf-overrides: keys of config.json that a user replaces without changing the file.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// `config` with the keys of `overrides` in place of its own. A key may be overridden where the
// weights are right for any value of it: positions, windows, end tokens; sizes, layouts and
// formats are those of the weights and are refused by name (kUnsupported). `rope_scaling` and
// `rope_parameters` are two names of one block, which is replaced as a whole but for the
// rope_theta that the new one lacks. Where a text model is nested in `text_config` its keys are
// meant, with and without that name around them. REQUIRES: both are objects.
Result<json::Value> OverrideConfig(json::Value config, const json::Value& overrides);

}  // namespace sluice
