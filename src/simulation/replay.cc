#include "simulation/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "scheduler/scheduled_sequence.h"

namespace sluice {
namespace {

struct ReplaySequence : ScheduledSequence {
  size_t request = 0;
  double arrival = 0, first_token = -1;
  StepParts at_arrival{}, at_first{};
};

// Returns a token of a prompt. Prompts share tokens only where their `hash_ids` are equal.
int32_t TokenOf(const ReplayRequest& request, size_t number, int64_t position) {
  const auto block = static_cast<size_t>(position / kHashTokens);
  const bool is_shared = block < request.hash_ids.size();
  uint64_t value = is_shared ? static_cast<uint64_t>(request.hash_ids[block])
                             : (uint64_t{1} << 40) + static_cast<uint64_t>(number);
  value = (value + 1) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(position) * 0xBF58476D1CE4E5B9u;
  value ^= value >> 29;
  return static_cast<int32_t>((value * 0x94D049BB133111EBu) >> 33);
}

StepParts Minus(const StepParts& a, const StepParts& b, double scale = 1) {
  StepParts result;
  for (size_t i = 0; i < kNumStepParts; ++i) result[i] = (a[i] - b[i]) * scale;
  return result;
}

class Replayer {
 public:
  Replayer(const StepClock& clock, const ReplayOptions& options,
           std::span<const ReplayRequest> requests)
      : clock_(clock),
        options_(options),
        requests_(requests),
        pool_(options.num_blocks),
        index_(options.prefix_caching ? std::make_unique<PrefixIndex>(
                                            pool_, options.limits.block_size, options.limits.groups)
                                      : nullptr),
        scheduler_(options.limits, pool_, index_.get()) {
    result_.requests.resize(requests.size());
  }

  Status Check() const {
    for (const ReplayRequest& request : requests_) {
      if (request.input < 1 || request.output < 1) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("a request of {} input and {} output tokens: expected at least 1 "
                                "of each",
                                request.input, request.output),
                    "trace");
      }
      const int64_t needed = MostBlocks(options_.limits, request.input + request.output);
      if (needed <= options_.num_blocks) continue;
      return Fail(
          ErrorCode::kResourceExhausted,
          fmt::format("a request of {} tokens takes {} blocks of the KV cache, which has {}",
                      request.input + request.output, needed, options_.num_blocks),
          "trace");
    }
    return {};
  }

  Result<ReplayResult> Run() {
    const bool is_closed = options_.concurrency > 0;
    if (!is_closed && !requests_.empty()) now_ = requests_.front().arrival;
    const double begin = now_;
    for (int64_t i = 0; is_closed && i < options_.concurrency; ++i) AddNext(now_);
    while (!result_.was_ended) {
      while (!is_closed && next_ < requests_.size() && requests_[next_].arrival <= now_)
        AddNext(requests_[next_].arrival);
      if (!scheduler_.has_work()) {
        if (next_ == requests_.size()) break;
        now_ = requests_[next_].arrival;
        continue;
      }
      if (!Step()) {
        return Fail(
            ErrorCode::kInternal,
            fmt::format("{} sequences wait, but none can be scheduled", scheduler_.num_waiting()));
      }
    }
    result_.seconds = now_ - begin;
    result_.num_preemptions = scheduler_.num_preemptions();
    return std::move(result_);
  }

 private:
  void AddNext(double arrival) {
    if (next_ == requests_.size()) return;
    const ReplayRequest& request = requests_[next_];
    auto sequence = std::make_unique<ReplaySequence>();
    sequence->request = next_;
    sequence->arrival = arrival;
    sequence->at_arrival = PartsAt(arrival);
    sequence->num_prompt_tokens = request.input;
    sequence->max_total_tokens = request.input + request.output;
    sequence->tokens.reserve(static_cast<size_t>(sequence->max_total_tokens));
    for (int64_t i = 0; i < request.input; ++i)
      sequence->tokens.push_back(TokenOf(request, next_, i));
    ++next_;
    scheduler_.SetTime(static_cast<int64_t>(now_ * 1e6));
    scheduler_.Add(*sequence);
    sequences_.push_back(std::move(sequence));
  }

  // Returns the sum of the amounts of all steps up to `time`, which lies within the last step.
  StepParts PartsAt(double time) const {
    if (last_seconds_ <= 0) return parts_;
    const double left = std::clamp((now_ - time) / last_seconds_, 0.0, 1.0);
    StepParts parts = parts_;
    for (size_t i = 0; i < kNumStepParts; ++i) parts[i] -= left * last_parts_[i];
    return parts;
  }

  // Runs a step. Returns false if no step could be planned.
  bool Step() {
    scheduler_.SetTime(static_cast<int64_t>(now_ * 1e6));
    const StepPlan& plan = scheduler_.Plan();
    if (plan.slices.empty()) return false;
    loads_.clear();
    for (const PlannedSlice& slice : plan.slices) {
      loads_.push_back({.context = slice.first,
                        .num_tokens = slice.num_tokens,
                        .wanted_rows = slice.samples ? 1 : 0});
    }
    last_parts_ = clock_.AmountsOf(loads_);
    last_seconds_ = SecondsOf(last_parts_, clock_.device().factors);
    for (size_t i = 0; i < kNumStepParts; ++i) parts_[i] += last_parts_[i];
    now_ += last_seconds_;
    ++result_.num_steps;
    result_.cached_tokens += plan.prefix_hits;
    scheduler_.Commit();
    done_.clear();
    for (const PlannedSlice& slice : plan.slices) {
      if (!slice.samples) continue;
      auto& sequence = static_cast<ReplaySequence&>(*slice.sequence);
      sequence.tokens.push_back(static_cast<int32_t>(sequence.tokens.size()));
      ++result_.output_tokens;
      if (sequence.first_token < 0) {
        sequence.first_token = now_;
        sequence.at_first = parts_;
      }
      if (std::ssize(sequence.tokens) == sequence.max_total_tokens) done_.push_back(&sequence);
    }
    for (ReplaySequence* sequence : done_) End(*sequence);
    return true;
  }

  void End(ReplaySequence& sequence) {
    const ReplayRequest& request = requests_[sequence.request];
    ReplayedRequest& replayed = result_.requests[sequence.request];
    const double host = clock_.request_seconds();
    const auto further = static_cast<double>(request.output - 1);
    replayed.ttft = sequence.first_token - sequence.arrival + host;
    replayed.latency = now_ - sequence.arrival + host;
    replayed.tpot = further > 0 ? (now_ - sequence.first_token) / further : 0;
    CountMisses(replayed);
    replayed.ttft_parts = Minus(sequence.at_first, sequence.at_arrival);
    replayed.ttft_parts[static_cast<size_t>(StepPart::kRequest)] = 1;
    if (further > 0) replayed.tpot_parts = Minus(parts_, sequence.at_first, 1 / further);
    scheduler_.Remove(sequence);
    sequence.tokens = {};
    if (options_.concurrency > 0) AddNext(now_);
  }

  void CountMisses(const ReplayedRequest& replayed) {
    if (!options_.level) return;
    const ServiceLevel& level = *options_.level;
    if (replayed.ttft <= level.ttft && replayed.tpot <= level.tpot) return;
    ++num_misses_;
    const auto all = static_cast<double>(requests_.size());
    result_.was_ended = static_cast<double>(num_misses_) > (1 - level.share) * all + 1e-9;
  }

  const StepClock& clock_;
  const ReplayOptions& options_;
  const std::span<const ReplayRequest> requests_;
  BlockPool pool_;
  std::unique_ptr<PrefixIndex> index_;
  std::vector<std::unique_ptr<ReplaySequence>> sequences_;
  Scheduler scheduler_;
  std::vector<SliceLoad> loads_;
  std::vector<ReplaySequence*> done_;
  size_t next_ = 0;
  int64_t num_misses_ = 0;
  double now_ = 0, last_seconds_ = 0;
  StepParts parts_{}, last_parts_{};
  ReplayResult result_;
};

}  // namespace

Result<ReplayResult> Replay(const StepClock& clock, const ReplayOptions& options,
                            std::span<const ReplayRequest> requests) {
  Replayer replayer(clock, options, requests);
  RETURN_IF_ERROR(replayer.Check());
  return replayer.Run();
}

double MeanOf(const ReplayResult& result, double ReplayedRequest::*figure) {
  double sum = 0;
  for (const ReplayedRequest& request : result.requests) sum += request.*figure;
  return result.requests.empty() ? 0 : sum / static_cast<double>(result.requests.size());
}

}  // namespace sluice
