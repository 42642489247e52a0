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
  // Entry i: the bounds of strings whose rule has the temperature i + 1. The matcher checks them,
  // because the grammar itself says only that they are strings. Tighter bounds come later.
  std::vector<StringBounds> bounds;
};

// xgrammar writes a bounded string of a schema as a rule `x_characters` that repeats {least, most}
// times. Its characters may be control characters, which JSON forbids, and no escapes; it compiles
// a mask for each of up to hundreds of positions, which takes seconds over a large vocabulary, or
// finds masks of long tokens at every step, which takes tens of milliseconds. This gives the same
// grammar (EBNF) with such strings as any others and their bounds apart. None where there is no
// such string.
//
// The rule's temperature, which means nothing else here, tells which bounds hold: so no two strings
// may be possible at one place, of which not both have the same bounds. With `may_overlap`, then,
// the grammar itself counts (`max_chars`), exactly but slowly, and without escapes.
std::optional<BoundedGrammar> TakeBoundsOut(std::string_view ebnf, bool may_overlap);

// Whether a schema may allow two strings at one place of an answer: two branches of one kind.
bool MayOverlap(const json::Value& schema);

}  // namespace sluice
