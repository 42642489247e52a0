// The load of the server in the header that balancers read (Open Request Cost Aggregation).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http/http_types.h"
#include "server/metrics.h"

namespace sluice {

// The header `endpoint-load-metrics` in the format that `endpoint-load-metrics-format` names (TEXT
// or JSON, in any case); none where the request does not ask or asks for something else.
std::optional<HttpHeader> LoadReport(const std::string* format, const Metrics& metrics, bool idle);

}  // namespace sluice
