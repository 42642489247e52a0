// Replays on an engine of its own.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "recording/replay.h"

namespace sluice::recording {

// Calls journal.Replay(seat), as often as it likes.
using ReplayWork = std::function<void(ReplayJournal& journal, const ReplaySeat& seat)>;

// Creates an engine with `config`, which must be of one engine, calls `work` on its thread, and
// ends it. Errors of Engine::Create. Blocks its caller until then.
Status RunOnEngine(const EngineConfig& config, std::vector<RecordedEvent> events,
                   const ReplayWork& work);

}  // namespace sluice::recording
