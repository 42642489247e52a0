// The fields of a request that constrain its answer (structured output).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "constraints/constraint.h"
#include "server/api/common/api_error.h"
#include "server/api/common/endpoint_kind.h"
#include "server/server_config.h"

namespace sluice {

struct RequestedConstraint {
  ConstraintSpec spec;
  std::string place;                 // location of the constraint in the request, for error
                                     // messages
  std::optional<std::string> param;  // the `param` of errors about the constraint
};

// Reads `response_format`, `structured_outputs`, and the fields with which other servers and older
// versions of vLLM request constraints (docs/compatibility.md). nullopt: the answer is free text.
// Errors: 400 for more than one constraint, for a constraint of the wrong type, and for an invalid
// JSON schema; with `strict`, also for a schema that cannot be enforced. REQUIRES: `body` is an
// object.
ApiResult<std::optional<RequestedConstraint>> ReadConstraint(const json::Value& body,
                                                             const ServerConfig& config,
                                                             EndpointKind kind);

// Whether ReadConstraint reads a field named `name`.
bool IsConstraintField(std::string_view name);

// Returns the schema that other servers accept next to the type json_object in `format`; null if
// there is none. `place`: on entry the location of `format`, afterwards the location of the schema.
const json::Value* SchemaBesideObject(const json::Value& format, std::string& place);

// Returns the constraint for a JSON schema that the request has at `place`. Errors as above.
ApiResult<std::optional<RequestedConstraint>> ReadSchemaConstraint(const json::Value& schema,
                                                                   bool strict, std::string place,
                                                                   const ServerConfig& config);

// Returns the API error for a constraint that failed to compile.
ApiError ConstraintError(const RequestedConstraint& constraint, const Error& error);

}  // namespace sluice
