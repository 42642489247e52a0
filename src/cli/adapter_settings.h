// The options of LoRA adapters.
#pragma once

#include "base/result.h"
#include "engine/adapter_settings.h"
#include "options/settings.h"

namespace sluice::cli {

// kInvalidArgument for adapters that are not spelt name=folder or as a JSON object, for two of one
// name or one of the model's name, and for adapters without --enable-lora.
Result<AdapterSettings> AdaptersOf(const options::Settings& settings);

}  // namespace sluice::cli
