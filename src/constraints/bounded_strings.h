// Handles the length bounds of strings in the grammar of a JSON schema.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constraints/string_counter.h"

namespace sluice {

struct BoundedGrammar {
  std::string ebnf;
  // Entry i: the bounds of strings whose rule has temperature i + 1. The matcher checks them,
  // because the grammar allows strings of any length. Sorted from loose to tight.
  std::vector<StringBounds> bounds;
};

// Returns the same grammar (EBNF) with unbounded strings, and the strings' bounds separately;
// nullopt if no string is bounded.
//
// xgrammar writes a bounded string of a schema as a rule `x_characters` that repeats {least, most}
// times. This rule allows control characters, which JSON forbids, and no escapes. For such a rule,
// xgrammar compiles up to hundreds of masks, one per position, which takes seconds for a large
// vocabulary. Otherwise it computes masks of long tokens in every step, which takes tens of
// milliseconds.
//
// A rule's temperature is otherwise unused, so it selects the bounds. So two strings with different
// bounds must not be possible at the same place. With `may_overlap`, the grammar itself counts
// characters (`max_chars`), which is exact but slow and does not allow escapes.
std::optional<BoundedGrammar> TakeBoundsOut(std::string_view ebnf, bool may_overlap);

// Whether a schema has branches of the same kind, so that it may allow two strings with different
// bounds at one place of an answer.
bool MayOverlap(const json::Value& schema);

}  // namespace sluice
