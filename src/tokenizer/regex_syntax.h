// Translates the regex dialect of tokenizer.json (Oniguruma's) to PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// A PCRE2 pattern (UTF, multi-line anchors, newline is LF) with the same matches as in Oniguruma.
// Character classes are expanded with the generated Unicode tables, so that results depend on
// neither library's Unicode version. kUnsupported names an unsupported construct: back references,
// named groups, conditionals, \X, \K and the like.
Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace sluice
