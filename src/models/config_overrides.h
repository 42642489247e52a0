// --hf-overrides: keys of config.json that a user replaces without editing the file.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Returns `config` with the keys of `overrides` replaced. Only keys whose value does not depend on
// the weights may be overridden: positions, windows, end tokens. Sizes, layouts and formats are
// refused with kUnsupported, which names the key. `rope_scaling` and `rope_parameters` are two
// names of one block, which is replaced as a whole. A new block without rope_theta keeps the
// rope_theta of the old block. If `config` has a text model in `text_config`, the overrides apply
// to that object, whether or not `overrides` nests them in `text_config`. REQUIRES: `config` and
// `overrides` are objects.
Result<json::Value> OverrideConfig(json::Value config, const json::Value& overrides);

}  // namespace sluice
