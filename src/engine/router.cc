#include "engine/router.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace sluice {

Router::Router(int num_engines, int block_size, int64_t num_blocks)
    : prefixes_(num_engines, block_size, num_blocks),
      unfinished_(static_cast<size_t>(num_engines)) {}

Router::Route Router::Choose(const Request& request, std::span<const bool> may_be_chosen) {
  // A prompt of rows has placeholder tokens, which do not identify the prompt.
  const bool has_prefix = request.use_prefix_cache && request.rows == nullptr;
  const std::vector<uint64_t> chain =
      has_prefix ? prefixes_.Chain(request.prompt, request.cache_salt) : std::vector<uint64_t>();
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const MutexLock lock(mutex_);
  const int num_engines = static_cast<int>(unfinished_.size());
  std::optional<Route> best;
  int64_t least = 0;
  for (int i = 0; i < num_engines; ++i) {
    const int engine = (next_ + i) % num_engines;
    if (!may_be_chosen[static_cast<size_t>(engine)]) continue;
    // The last token of a prompt is always computed.
    const int64_t found = std::clamp<int64_t>(prefixes_.Find(engine, chain), 0, prompt_tokens - 1);
    const int64_t cost = unfinished_[static_cast<size_t>(engine)] + prompt_tokens - found;
    if (best && cost >= least) continue;
    best = Route{.engine = engine, .prompt_tokens = prompt_tokens - found};
    least = cost;
  }
  CHECK(best);
  best->output_tokens =
      request.num_sequences * std::clamp<int64_t>(request.sampling.max_tokens, 1, kExpectedTokens);
  unfinished_[static_cast<size_t>(best->engine)] += best->tokens();
  prefixes_.Add(best->engine, chain);
  next_ = (best->engine + 1) % num_engines;
  return *best;
}

void Router::Finish(int engine, int64_t tokens) {
  const MutexLock lock(mutex_);
  unfinished_[static_cast<size_t>(engine)] -= tokens;
}

int64_t Router::unfinished_tokens(int engine) const {
  const MutexLock lock(mutex_);
  return unfinished_[static_cast<size_t>(engine)];
}

void Router::ForgetPrefixes() {
  const MutexLock lock(mutex_);
  prefixes_.Clear();
}

}  // namespace sluice
