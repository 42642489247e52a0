#include "kernels/cuda/launch_timer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice::device {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kRounds = 2;
constexpr int64_t kLaunchesPerRound = 4;
// If the first round takes more than this multiple of `to_be_beaten`, the measurement ends.
constexpr double kHopeless = 1.5;

}  // namespace

Result<LaunchTimer> LaunchTimer::Create(Device& device) {
  ASSIGN_OR_RETURN(auto begin, device.CreateEvent());
  ASSIGN_OR_RETURN(auto end, device.CreateEvent());
  return LaunchTimer(std::move(begin), std::move(end));
}

Result<double> LaunchTimer::Seconds(DeviceStream& stream, int64_t turns, double to_be_beaten,
                                    const Launch& launch) {
  const int64_t launches = std::max(turns, kLaunchesPerRound);
  double best = kNever;
  for (int round = 0; round < kRounds; ++round) {
    // The first launch of a round is not timed: it loads the code and raises the clock rate.
    for (int64_t i = 0; i <= launches; ++i) {
      if (i == 1) stream.Record(*begin_);
      if (!launch(i % turns)) {
        RETURN_IF_ERROR(stream.Synchronize());
        return kNever;
      }
    }
    stream.Record(*end_);
    RETURN_IF_ERROR(stream.Synchronize());
    ASSIGN_OR_RETURN(const double seconds, end_->SecondsSince(*begin_));
    best = std::min(best, seconds / static_cast<double>(launches));
    if (best > kHopeless * to_be_beaten) break;
  }
  return best;
}

}  // namespace sluice::device
