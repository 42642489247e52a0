// Delays requests until their LoRA adapter is in memory.
#pragma once

#include <functional>
#include <memory>

#include "engine/engine.h"
#include "server/api/common/active_requests.h"
#include "server/api/common/worker_pool.h"

namespace sluice {

// Calls `start` now if the adapter is ready or null; otherwise later in a task of `pool`, or ends
// the request with an error if the adapter was removed or cannot be read. Does nothing after the
// request or the adapter's use was destroyed. `engine`: owner of the adapter, which must outlive
// the request. `has_waited`: whether the call was delayed. It becomes Request::was_accepted, so
// that a drain that has begun also finishes requests that waited for an adapter.
void StartWithAdapter(Engine& engine, const std::shared_ptr<const AdapterUse>& adapter,
                      WorkerPool& pool, std::weak_ptr<AbortableRequest> request,
                      std::function<void(bool has_waited)> start);

}  // namespace sluice
