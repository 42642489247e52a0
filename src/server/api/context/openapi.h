// The server's description of its own routes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/context/route.h"
#include "server/server_config.h"

namespace sluice {

// Returns /openapi.json (OpenAPI 3.1): every route in `routes` that has a summary, with the schemas
// of its body and answer.
std::string OpenApiDocument(const std::vector<const Route*>& routes, const ServerConfig& config);

// Returns /docs: the same information as a page that loads nothing from other servers.
std::string DocsPage(const std::vector<const Route*>& routes, const ServerConfig& config);

// Returns the document's `components.schemas`, a JSON object: the text of openapi_schemas.json in
// this folder. The schemas list the fields that are read. Other fields are ignored, and numbers and
// booleans may be written as strings, as in vLLM.
std::string_view OpenApiSchemas();

}  // namespace sluice
