// Implements `sluice parse`: reads model outputs and writes what the parsers return, one JSON
// object per line.
#pragma once

#include <istream>
#include <memory>
#include <ostream>

#include "base/result.h"
#include "parsers/parser_table.h"
#include "parsers/tool_types.h"

namespace sluice {

struct ParseToolOptions {
  const ToolParser* tools = nullptr;
  const ReasoningParser* reasoning = nullptr;
  std::shared_ptr<const ToolTypes> types;  // used for lines without tools; may be null
};

// Reads objects with "text", "chunks", and optionally "prompt", "chat_template_kwargs" and "tools";
// skips blank lines. Writes {"content", "reasoning", "tool_calls", "deltas"}: the first three
// describe the whole text; "deltas" has a delta or null for each chunk, and one for the end of the
// stream. A line that is not such an object gives {"error": {"message": ...}}. kInvalidArgument
// only if the output cannot be written.
Status RunParse(const ParseToolOptions& options, std::istream& in, std::ostream& out);

}  // namespace sluice
