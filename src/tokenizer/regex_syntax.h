// Translates the regex dialect of tokenizer.json (Oniguruma's) to PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Returns a PCRE2 pattern (UTF, multi-line anchors, newline is LF) that matches what `pattern`
// matches in Oniguruma. Expands character classes with the generated Unicode tables, so that
// results do not depend on either library's Unicode version. kUnsupported names a construct that
// cannot be translated: back references, named groups, conditionals, \X, \K and the like.
Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace sluice
