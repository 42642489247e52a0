// Whether a template takes message contents as strings or as lists of parts.
#pragma once

#include "chat/jinja/ast.h"

namespace sluice::jinja {

// kParts if the template has a loop over the `content` of an item of `messages` (or of a variable
// assigned from it), as in vLLM.
ChatTemplate::ContentFormat DetectContentFormat(const Block& body);

}  // namespace sluice::jinja
