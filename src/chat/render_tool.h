// Implements `sluice render`: reads template variables and writes rendered text, one JSON object
// per line.
#pragma once

#include <istream>
#include <ostream>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"

namespace sluice {

// Parses "2025-07-26T12:34:56" (or with a blank instead of T, or only a date): the clock of a
// template.
Result<std::chrono::local_time<std::chrono::microseconds>> ParseCivilTime(std::string_view text);

// Reads objects of template variables, one per line (blank lines are skipped), and writes {"text":
// ...} or {"error": ...} for each. `defaults` (an object) holds variables that a line may override,
// such as special tokens; `tools` and `documents` are None if absent from both. A line that is not
// a JSON object yields an error line. kInvalidArgument only if the output cannot be written.
Status RunRender(const ChatTemplate& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out);

// The same for a template that may not have compiled: then every line yields its error.
Status RunRender(const Result<ChatTemplate>& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out);

}  // namespace sluice
