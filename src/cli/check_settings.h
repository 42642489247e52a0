// Options that contradict each other, or that name what is not there.
#pragma once

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// Errors name both options and the remedy. kUnsupported for a device that this program cannot use.
Status CheckSettings(const options::Settings& settings);

}  // namespace sluice::cli
