// What a prompt says about the thought of the answer that continues it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "parsers/reasoning_format.h"
#include "server/api/request/prompt.h"

namespace sluice {

// The end of `prompt` from its last mark of a thought on, if that mark belongs to the turn that the
// answer continues; else "". A mark that was followed by the end of a turn, or by words and then a
// token that the template wrote, belongs to an earlier one.
std::string LastThoughtMark(const Prompt& prompt, const ReasoningFormat& format,
                            const Tokenizer& tokenizer, std::span<const int32_t> end_tokens);

}  // namespace sluice
