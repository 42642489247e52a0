// Finds operators that a configuration needs and this program lacks.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Lists the operators that sluice lacks for the decoder that `config` (a config.json) describes,
// even if its architecture is unknown. Each entry names the field that needs the operator:
// "latent attention (kv_lora_rank)". Also lists each module in the layers of `checkpoint` (may be
// null) that no family's layers have. Empty if nothing is found; then perhaps only the family's
// file is missing. Fields of a wrong type are skipped.
std::vector<std::string> UnknownOperators(const json::Value& config, const Checkpoint* checkpoint);

}  // namespace sluice
