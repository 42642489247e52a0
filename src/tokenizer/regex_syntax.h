// The regex dialect of tokenizer.json (Oniguruma's), in the words of PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// A PCRE2 pattern (UTF, multi-line anchors, newline is LF) that matches what Oniguruma would match.
// Character classes are worked out to the code points of the generated Unicode tables, so that
// neither library's Unicode version matters. kUnsupported names a construct that is left out: back
// references, named groups, conditionals, \X, \K and the like.
Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace sluice
