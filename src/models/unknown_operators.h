// What a configuration asks for that no operator of this program computes.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace sluice {

// Of the decoder that `config`, a config.json, describes, whether its architecture is known or not:
// one entry for each operator that is missing, which names the field that asks for it
// ("latent attention (kv_lora_rank)"). Empty where nothing is found: then the family's file alone
// may be missing. For people: a field that is not of its type is passed over.
std::vector<std::string> UnknownOperators(const json::Value& config);

}  // namespace sluice
