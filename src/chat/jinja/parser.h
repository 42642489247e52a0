// Parses a template into its syntax tree.
#pragma once

#include <string_view>

#include "chat/jinja/ast.h"

namespace sluice::jinja {

// Fails (kSyntax), with the line, if the source is invalid, unsupported or nested too deeply.
Block Parse(std::string_view source);

}  // namespace sluice::jinja
