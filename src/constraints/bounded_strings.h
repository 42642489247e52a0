// Strings of bounded length in the grammar of a JSON schema.
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
  // Entry i: the bounds of strings whose rule has temperature i + 1. The matcher checks them: the
  // grammar allows strings of any length. Sorted from loose to tight.
  std::vector<StringBounds> bounds;
};

// xgrammar writes a bounded string of a schema as a rule `x_characters` that repeats {least, most}
// times. It allows control characters, which JSON forbids, and no escapes. xgrammar compiles a mask
// for each of up to hundreds of positions, which takes seconds for a large vocabulary, or computes
// masks of long tokens at every step, which takes tens of milliseconds. This function returns the
// same grammar (EBNF) with unbounded strings, and their bounds separately; nullopt if there is no
// bounded string.
//
// The temperature of a rule, which has no other meaning here, selects the bounds. So strings with
// different bounds must not be possible at the same place. With `may_overlap`, the grammar itself
// counts (`max_chars`) instead: exactly but slowly, and without escapes.
std::optional<BoundedGrammar> TakeBoundsOut(std::string_view ebnf, bool may_overlap);

// Whether a schema may allow two strings with different bounds at one place of an answer: it has
// branches of the same kind.
bool MayOverlap(const json::Value& schema);

}  // namespace sluice
