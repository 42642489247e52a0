// Finds operators that a configuration needs and that this program lacks.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Returns the operators that sluice lacks for the decoder that `config` (a config.json) describes,
// even if its architecture is unknown. Each entry names the field that needs the operator: "latent
// attention (kv_lora_rank)". Also returns each module in the layers of `checkpoint` (may be null)
// that no family's layers have. If the list is empty, possibly only a reader for the family is
// missing. Fields of a wrong type are skipped.
std::vector<std::string> UnknownOperators(const json::Value& config, const Checkpoint* checkpoint);

}  // namespace sluice
