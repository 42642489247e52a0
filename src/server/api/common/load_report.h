// The server's load, in the header that load balancers read (Open Request Cost Aggregation).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http/http_types.h"
#include "server/metrics.h"

namespace sluice {

// Returns the header `endpoint-load-metrics` in the format that `endpoint-load-metrics-format`
// names (TEXT or JSON, case-insensitive); nullopt if the format is absent or unknown.
std::optional<HttpHeader> LoadReport(const std::string* format, const Metrics& metrics, bool idle);

}  // namespace sluice
