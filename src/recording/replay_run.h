// Creates an engine and replays a recording on it.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "recording/replay.h"

namespace sluice::recording {

// Called on the engine's thread; may call journal.Replay(seat) any number of times.
using ReplayWork = std::function<void(ReplayJournal& journal, const ReplaySeat& seat)>;

// Creates an engine with `config`, which must describe a single engine, calls `work` on the
// engine's thread, and destroys the engine. Blocks the caller until then. Errors are those of
// Engine::Create.
Status RunOnEngine(const EngineConfig& config, std::vector<RecordedEvent> events,
                   const ReplayWork& work);

}  // namespace sluice::recording
