// Implements `sluice tokenize`.
#pragma once

#include <iosfwd>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Reads JSON lines and writes one JSON line for each, in order; skips blank lines. `decode` false:
// {"text": string, "add_special_tokens": bool (true)} gives {"ids": [...]}. `decode` true: {"ids":
// [...], "skip_special_tokens": bool (true)} gives {"text": string}. kInvalidArgument, with the
// line number, for the first line that has another form.
Status RunTokenize(const Tokenizer& tokenizer, bool decode, std::istream& in, std::ostream& out);

}  // namespace sluice
