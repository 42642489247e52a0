// docs/metrics.md, from what /metrics itself says.
#pragma once

#include <string>

namespace sluice::cli {

std::string MetricsMarkdown();

}  // namespace sluice::cli
