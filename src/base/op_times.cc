#include "base/op_times.h"

#include <algorithm>

#include <fmt/format.h>

namespace sluice {

OpTimes::Count& OpTimes::Of(std::string_view op) {
  const MutexLock lock(mutex_);
  for (Count& count : counts_) {
    if (count.op == op) return count;
  }
  Count& count = counts_.emplace_back();
  count.op = op;
  return count;
}

std::vector<OpTime> OpTimes::All() const {
  const MutexLock lock(mutex_);
  std::vector<OpTime> all;
  for (const Count& count : counts_) {
    const int64_t calls = count.calls.load(std::memory_order_relaxed);
    if (calls == 0) continue;
    const int64_t nanoseconds = count.nanoseconds.load(std::memory_order_relaxed);
    all.push_back({count.op, calls, 1e-9 * static_cast<double>(nanoseconds)});
  }
  return all;
}

std::vector<std::string> OpTimeLines(const std::vector<OpTime>& now,
                                     const std::vector<OpTime>& before) {
  std::vector<OpTime> since;
  double all_seconds = 0;
  for (OpTime op : now) {
    const auto earlier = std::ranges::find(before, op.op, &OpTime::op);
    if (earlier != before.end()) {
      op.calls -= earlier->calls;
      op.seconds -= earlier->seconds;
    }
    if (op.calls == 0) continue;
    all_seconds += op.seconds;
    since.push_back(std::move(op));
  }
  std::ranges::stable_sort(since, std::greater<>(), &OpTime::seconds);
  std::vector<std::string> lines;
  for (const OpTime& op : since) {
    const double share = all_seconds > 0 ? 100 * op.seconds / all_seconds : 0;
    lines.push_back(
        fmt::format("{:5.1f} % {:9.3f} s {:9} calls  {}", share, op.seconds, op.calls, op.op));
  }
  return lines;
}

}  // namespace sluice
