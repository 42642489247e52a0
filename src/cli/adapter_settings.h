// Reads the options of LoRA adapters.
#pragma once

#include "base/result.h"
#include "engine/adapter_settings.h"
#include "options/settings.h"

namespace sluice::cli {

// kInvalidArgument for: an adapter that is not name=folder or a JSON object; a name that another
// adapter or the model has; adapters without --enable-lora.
Result<AdapterSettings> AdaptersOf(const options::Settings& settings);

}  // namespace sluice::cli
