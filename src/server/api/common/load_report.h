// The server's load in the header that load balancers read (Open Request Cost Aggregation).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http/http_types.h"
#include "server/metrics.h"

namespace sluice {

// The header `endpoint-load-metrics` in the format that `endpoint-load-metrics-format` names (TEXT
// or JSON, in any case); none for another format or none.
std::optional<HttpHeader> LoadReport(const std::string* format, const Metrics& metrics, bool idle);

}  // namespace sluice
