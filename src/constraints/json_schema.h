// A client's JSON schema before it is compiled: errors that an engine would not find, keywords that
// it would ignore, and what can be said in other words that it enforces.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

struct CheckedSchema {
  json::Value schema;  // of the same meaning, but for `not_enforced`
  // Keywords, each with its place, which the engine ignores: an answer may break them.
  std::vector<std::string> not_enforced;
};

// kInvalidArgument, naming keyword and place: a keyword of the wrong type, a reference into the
// schema that leads nowhere, bounds that nothing meets, an unknown type or format, `uniqueItems` or
// `contains`, nesting beyond kMaxConstraintDepth; and with `strict` all that is not enforced.
Result<CheckedSchema> CheckJsonSchema(const json::Value& schema, bool strict);

}  // namespace sluice
