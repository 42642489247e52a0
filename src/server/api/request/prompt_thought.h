// Determines whether the end of a prompt, which the answer continues, is inside reasoning.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "parsers/reasoning_format.h"
#include "server/api/request/prompt.h"

namespace sluice {

// Returns the end of `prompt` from its last reasoning mark on, if that mark belongs to the turn
// that the answer continues; else "". A mark belongs to an earlier turn in two cases: an end token
// follows it; or words follow it, as well as an added token that is not part of a mark.
std::string LastThoughtMark(const Prompt& prompt, const ReasoningFormat& format,
                            const Tokenizer& tokenizer, std::span<const int32_t> end_tokens);

}  // namespace sluice
