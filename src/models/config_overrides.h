// --hf-overrides: keys of config.json that a user replaces without editing the file.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Returns `config` with the keys of `overrides` replaced. Only keys whose value does not depend on
// the weights may be overridden: positions, windows, end tokens. Sizes, layouts and formats are
// refused with kUnsupported, which names the key. `rope_scaling` and `rope_parameters` are two
// names of one block, which is replaced as a whole; it keeps its rope_theta if the new block has
// none. If `config` nests a text model in `text_config`, the overrides apply there, with or without
// that name around them. REQUIRES: both are objects.
Result<json::Value> OverrideConfig(json::Value config, const json::Value& overrides);

}  // namespace sluice
