// A client's JSON schema before it is compiled: errors that an engine would not find, and what it
// would ignore in words that it enforces (schema_rewriter.h, docs/json-schema.md).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

struct CheckedSchema {
  json::Value schema;  // of the same meaning, but for `not_enforced`
  // Keywords, each with its place, that an answer may break.
  std::vector<std::string> not_enforced;
};

// kInvalidArgument, naming keyword and place: a keyword of the wrong type, a reference into the
// schema that leads nowhere, bounds that nothing meets, an unknown type, `contains`,
// `uniqueItems` of what cannot be enumerated, nesting beyond kMaxConstraintDepth, a schema that
// allows nothing; and with `strict` all that is not enforced.
Result<CheckedSchema> CheckJsonSchema(const json::Value& schema, bool strict);

}  // namespace sluice
