// Reads calls that an answer is forced to make. Instead of the model's own format, such an answer
// is a JSON list of calls, or the arguments of a call whose name is known.
#pragma once

#include <memory>
#include <string>

#include "parsers/tool_reader.h"

namespace sluice {

// Reads [{"name": "f", "parameters": {...}}, ...] and nothing else.
std::unique_ptr<ToolReader> MakeCallListReader();

// Reads the arguments of a single call of the tool `name`.
std::unique_ptr<ToolReader> MakeArgumentsReader(std::string name);

}  // namespace sluice
