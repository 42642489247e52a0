// What a configuration asks for that no operator of this program computes.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Lists the operators that sluice lacks for the decoder that `config`, a config.json, describes,
// whether its architecture is known or not: one entry for each, with the field that asks for it
// ("latent attention (kv_lora_rank)"), and one for each module of its layers in `checkpoint` (null
// for none) that no family's layers have. Empty if nothing is found: then the family's file alone
// may be missing. For people: fields of a wrong type are skipped.
std::vector<std::string> UnknownOperators(const json::Value& config, const Checkpoint* checkpoint);

}  // namespace sluice
