// Describes all inputs that determine the bits of an answer, except weights, tokens and sampling
// parameters.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/engine_config.h"
#include "options/settings.h"

namespace sluice::cli {

// Returns an object of strings: device, instruction set, a fingerprint of the arithmetic, types,
// and the options that change values. Machines with equal profiles compute equal bits.
json::Value ArithmeticProfile(const options::Settings& settings, const EngineInfo& info);

// Returns the first difference of two profiles: "isa: amx in the receipt, avx512 here"; "" if they
// are equal.
std::string DifferenceOfProfiles(const json::Value& in_receipt, const json::Value& here);

}  // namespace sluice::cli
