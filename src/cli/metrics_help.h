// docs/metrics.md, generated from the output of /metrics.
#pragma once

#include <string>

namespace sluice::cli {

std::string MetricsMarkdown();

}  // namespace sluice::cli
