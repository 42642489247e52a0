// What `sluice render` does: template variables in, rendered text out, one JSON object a line.
#pragma once

#include <istream>
#include <ostream>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"

namespace sluice {

// "2025-07-26T12:34:56" (or with a blank, or a date alone), as the clock of a template.
Result<std::chrono::local_time<std::chrono::microseconds>> ParseCivilTime(std::string_view text);

// Reads objects of template variables, one a line (blank lines are skipped), and writes {"text":
// ...} or {"error": ...} for each. `defaults` (an object) holds variables that a line may override,
// such as special tokens; `tools` and `documents` are None where neither has them. A line that is
// not a JSON object gets an error line of its own. kInvalidArgument only if the output cannot be
// written.
Status RunRender(const ChatTemplate& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out);

// The same for a template that may not have compiled: every line is then answered with its error.
Status RunRender(const Result<ChatTemplate>& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out);

}  // namespace sluice
