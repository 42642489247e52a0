// What a configuration asks for that no operator of this program computes.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Of the decoder that `config`, a config.json, describes, whether its architecture is known or not:
// one entry for each operator that is missing, which names the field that asks for it
// ("latent attention (kv_lora_rank)"), and one for each module of its layers in `checkpoint` (null
// for none) that no family's layers have. Empty where nothing is found: then the family's file
// alone may be missing. For people: a field that is not of its type is passed over.
std::vector<std::string> UnknownOperators(const json::Value& config, const Checkpoint* checkpoint);

}  // namespace sluice
