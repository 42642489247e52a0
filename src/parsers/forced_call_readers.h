// Calls that an answer is forced to make, in a form that no model's own format has: a list of
// calls, or the arguments of a call whose name is known.
#pragma once

#include <memory>
#include <string>

#include "parsers/tool_reader.h"

namespace sluice {

// The text is [{"name": "f", "parameters": {...}}, ...] and nothing else.
std::unique_ptr<ToolReader> MakeCallListReader();

// The text is the arguments of the one call, of the tool `name`.
std::unique_ptr<ToolReader> MakeArgumentsReader(std::string name);

}  // namespace sluice
