// Checks a client's JSON schema before it is compiled: finds errors that an engine would not find,
// and rewrites keywords that it would ignore in ones that it enforces (schema_rewriter.h,
// docs/json-schema.md).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

struct CheckedSchema {
  json::Value schema;  // has the same meaning, except for `not_enforced`
  // Keywords, each with its place, that an answer may violate.
  std::vector<std::string> not_enforced;
};

// kInvalidArgument, naming keyword and place: a keyword of the wrong type, a local reference
// without a target, bounds that no value satisfies, an unknown type, `contains`, `uniqueItems` of
// values that cannot be enumerated, nesting beyond kMaxConstraintDepth, a schema that allows
// nothing; and with `strict` any keyword that is not enforced.
Result<CheckedSchema> CheckJsonSchema(const json::Value& schema, bool strict);

}  // namespace sluice
