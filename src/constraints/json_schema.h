// Checks a client's JSON schema before it is compiled. Finds errors that an engine would not find,
// and replaces keywords that the engine would ignore by keywords that it enforces
// (schema_rewriter.h, docs/json-schema.md).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

struct CheckedSchema {
  json::Value schema;  // the rewritten schema: has the same meaning, except for `not_enforced`
  // Keywords, each with its location, that an answer may violate.
  std::vector<std::string> not_enforced;
};

// kInvalidArgument, which names the keyword and its location, for: a keyword of the wrong type; a
// local reference without a target; bounds that no value satisfies; an unknown type; `contains`;
// `uniqueItems` of values that cannot be enumerated; nesting beyond kMaxConstraintDepth; a schema
// that allows nothing. With `strict`, also for any keyword that is not enforced.
Result<CheckedSchema> CheckJsonSchema(const json::Value& schema, bool strict);

}  // namespace sluice
