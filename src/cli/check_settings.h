// Checks options for contradictions.
#pragma once

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// kInvalidArgument for options that contradict each other; the message names both and a remedy.
Status CheckSettings(const options::Settings& settings);

}  // namespace sluice::cli
