// Reads the options of LoRA adapters.
#pragma once

#include "base/result.h"
#include "engine/adapter_settings.h"
#include "options/settings.h"

namespace sluice::cli {

// kInvalidArgument for adapters that are neither name=folder nor a JSON object, for two adapters
// with the same name or one with the model's name, and for adapters without --enable-lora.
Result<AdapterSettings> AdaptersOf(const options::Settings& settings);

}  // namespace sluice::cli
