// The server's description of its own routes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/context/route.h"
#include "server/server_config.h"

namespace sluice {

// /openapi.json (OpenAPI 3.1): every route of `routes` that has a summary, with the schemas of its
// body and answer.
std::string OpenApiDocument(const std::vector<const Route*>& routes, const ServerConfig& config);

// /docs: the same as a page that loads nothing from elsewhere.
std::string DocsPage(const std::vector<const Route*>& routes, const ServerConfig& config);

// The `components.schemas` of the document, a JSON object: the text of openapi_schemas.json beside
// this file. The schemas name the fields that are read; others are ignored, and numbers and
// booleans may be written as strings, as vLLM accepts them.
std::string_view OpenApiSchemas();

}  // namespace sluice
