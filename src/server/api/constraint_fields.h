// The fields of a request that constrain its answer (structured output).
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "constraints/constraint.h"
#include "server/api/api_error.h"
#include "server/api/endpoint_kind.h"
#include "server/server_config.h"

namespace sluice {

struct RequestedConstraint {
  ConstraintSpec spec;
  std::string place;                 // of the constraint in the request, for errors about it
  std::optional<std::string> param;  // the `param` of such errors
};

// Reads `response_format`, `structured_outputs`, vLLM's older `guided_json`, `guided_regex`,
// `guided_choice` and `guided_grammar`, and `guided_decoding` of trtllm-serve. None: the answer is
// free text. Errors: 400 for more than one, for one of the wrong type, and for a JSON schema that
// is invalid or, with `strict`, cannot be enforced. REQUIRES: `body` is an object.
ApiResult<std::optional<RequestedConstraint>> ReadConstraint(const json::Value& body,
                                                             const ServerConfig& config,
                                                             EndpointKind kind);

// The constraint of a JSON schema; `place` is where the request has it. Errors as above.
ApiResult<std::optional<RequestedConstraint>> ReadSchemaConstraint(const json::Value& schema,
                                                                   bool strict, std::string place,
                                                                   const ServerConfig& config);

// An error about the constraint itself, found while it was compiled.
ApiError ConstraintError(const RequestedConstraint& constraint, const Error& error);

}  // namespace sluice
