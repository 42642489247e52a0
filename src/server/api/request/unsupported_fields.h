// Request fields for features that this server lacks.
#pragma once

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/api/request/sampling_fields.h"

namespace sluice {

// Refuses these fields by name, because the answer would otherwise silently ignore them. Errors:
// 400. REQUIRES: `body` is an object.
ApiStatus RefuseUnsupported(const json::Value& body, const ServerConfig& config, EndpointKind kind);

}  // namespace sluice
