#include "cli/failure_thread.h"

#include <utility>

#include "base/firewall.h"

namespace sluice::cli {

FailureThread::FailureThread(std::function<void()> act)
    : thread_([act = std::move(act), has_failed = has_failed_.get_future()]() mutable {
        if (has_failed.get()) RunGuarded("serve", "to end after a failure", act);
      }) {}

FailureThread::~FailureThread() {
  Tell(/*has_failed=*/false);
  thread_.join();
}

void FailureThread::Tell(bool has_failed) {
  if (!is_told_.exchange(true)) has_failed_.set_value(has_failed);
}

}  // namespace sluice::cli
