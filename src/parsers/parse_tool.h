// What `sluice parse` does: texts of models in, what parsers make of them out, one JSON object a
// line.
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
  std::shared_ptr<const ToolTypes> types;  // of the tools of lines that have none; may be null
};

// Reads objects with "text", "chunks", and maybe "prompt", "chat_template_kwargs" and "tools";
// blank lines are skipped. Writes {"content", "reasoning", "tool_calls", "deltas"}: the first three
// of the whole text, one delta or null for each chunk, the last of which ends the stream. A line
// that is no such object gets {"error": {"message": ...}}. kInvalidArgument only if the output
// cannot be written.
Status RunParse(const ParseToolOptions& options, std::istream& in, std::ostream& out);

}  // namespace sluice
