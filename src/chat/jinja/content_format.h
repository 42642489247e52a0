// Determines whether a template reads message contents as strings or as lists of parts.
#pragma once

#include "chat/jinja/ast.h"

namespace sluice::jinja {

// Returns kParts if the template loops over the `content` of an item of `messages` (or of a
// variable assigned from it), as vLLM does.
ChatTemplate::ContentFormat DetectContentFormat(const Block& body);

}  // namespace sluice::jinja
