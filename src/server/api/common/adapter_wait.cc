#include "server/api/common/adapter_wait.h"

#include <utility>

#include "engine/adapters.h"

namespace sluice {

void StartWithAdapter(Engine& engine, const std::shared_ptr<const AdapterUse>& adapter,
                      WorkerPool& pool, std::weak_ptr<AbortableRequest> request,
                      std::function<void(bool has_waited)> start) {
  if (adapter == nullptr || adapter->is_ready()) return start(/*has_waited=*/false);
  engine.adapters()->WhenReady(adapter, [&pool, request = std::move(request),
                                         start = std::move(start)](const Status& status) {
    // Continues on the pool, because this thread loads adapters, for which other requests wait.
    pool.Submit([request, start, status] {
      const std::shared_ptr<AbortableRequest> alive = request.lock();
      if (alive == nullptr) return;
      if (status)
        start(/*has_waited=*/true);
      else
        alive->FailFromServer(status.error());
    });
  });
}

}  // namespace sluice
