// Calls that an answer is made to have in a form that no model has of its own: a list of calls, or
// the bare arguments of a call whose name is known.
#pragma once

#include <memory>
#include <string>

#include "parsers/tool_reader.h"

namespace sluice {

// [{"name": "f", "parameters": {...}}, ...]. Nothing else is in the text.
std::unique_ptr<ToolReader> MakeCallListReader();

// The text is the arguments of the one call, of the tool `name`.
std::unique_ptr<ToolReader> MakeArgumentsReader(std::string name);

}  // namespace sluice
