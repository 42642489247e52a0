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
  std::string place;                 // of the constraint in the request, for errors about it
  std::optional<std::string> param;  // the `param` of such errors
};

// Reads `response_format`, `structured_outputs`, and what other servers and vLLM's older versions
// call them (docs/compatibility.md). None: the answer is free text. Errors: 400 for more than one,
// for one of the wrong type, and for a JSON schema that is invalid or, with `strict`, cannot be
// enforced. REQUIRES: `body` is an object.
ApiResult<std::optional<RequestedConstraint>> ReadConstraint(const json::Value& body,
                                                             const ServerConfig& config,
                                                             EndpointKind kind);

// Whether ReadConstraint reads a field of that name.
bool IsConstraintField(std::string_view name);

// The schema that other servers take beside the type json_object in `format`, which stands at
// `place`: it, and the place of it; null if there is none.
const json::Value* SchemaBesideObject(const json::Value& format, std::string& place);

// The constraint of a JSON schema; `place` is where the request has it. Errors as above.
ApiResult<std::optional<RequestedConstraint>> ReadSchemaConstraint(const json::Value& schema,
                                                                   bool strict, std::string place,
                                                                   const ServerConfig& config);

// An error about the constraint itself, found while it was compiled.
ApiError ConstraintError(const RequestedConstraint& constraint, const Error& error);

}  // namespace sluice
