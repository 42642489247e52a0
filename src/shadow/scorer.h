// Scores a given answer with an engine, in one forward pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "shadow/judge.h"

namespace sluice::shadow {

// Scores the tokens of `answer` after `prompt`, with the `top` best alternatives each. Blocks until
// the engine has computed it. kInvalidArgument if both do not fit into the context or have tokens
// outside the vocabulary.
Result<Scores> ScoreAnswer(Engine& engine, std::span<const int32_t> prompt,
                           std::span<const int32_t> answer, int32_t top);

}  // namespace sluice::shadow
