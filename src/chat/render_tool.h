// Implements `sluice render`: reads template variables and writes rendered text, one JSON object
// per line.
#pragma once

#include <istream>
#include <ostream>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"

namespace sluice {

// Parses a time for strftime_now: "2025-07-26T12:34:56", or with a blank instead of T, or only a
// date.
Result<std::chrono::local_time<std::chrono::microseconds>> ParseCivilTime(std::string_view text);

// Reads objects of template variables, one per line (blank lines are skipped), and writes {"text":
// ...} or {"error": ...} for each. `defaults` (an object) contains variables that a line may
// override, such as special tokens; `tools` and `documents` are None if absent from both. For a
// line that is not a JSON object, writes an error line. kInvalidArgument only if the output cannot
// be written.
Status RunRender(const ChatTemplate& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out);

// As above, for a template that may have failed to compile. In that case, every output line
// contains that error.
Status RunRender(const Result<ChatTemplate>& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out);

}  // namespace sluice
