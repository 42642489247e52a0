// Chooses the engine, among several, that computes a request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "engine/prefix_routes.h"
#include "engine/request.h"

namespace sluice {

// Chooses the engine that would finish first: the one with the fewest tokens left to compute, not
// counting prompt tokens that its cache probably has. So a request goes to the engine that has its
// prefix, unless that engine has more other work than the prefix saves. Engines with equal work
// take turns. Counts at most kExpectedTokens tokens of an answer, because most answers end long
// before max_tokens. Thread safety: all methods may be called from any thread.
class Router {
 public:
  static constexpr int64_t kExpectedTokens = 256;

  // Parameters as in PrefixRoutes; `num_blocks` is 0 if the engines have no prefix cache.
  Router(int num_engines, int block_size, int64_t num_blocks);

  struct Route {
    int engine = 0;
    int64_t prompt_tokens = 0;  // prompt tokens to compute, estimated
    int64_t output_tokens = 0;
    int64_t tokens() const { return prompt_tokens + output_tokens; }
  };
  // Chooses among the engines in `may_be_chosen`, and counts the request there as unfinished.
  // REQUIRES: at least one may be chosen.
  Route Choose(const Request& request, std::span<const bool> may_be_chosen);
  // Records that `tokens` of the engine's tokens are finished or will not be computed.
  void Finish(int engine, int64_t tokens);
  int64_t unfinished_tokens(int engine) const;
  // Call when the engines' caches have been emptied.
  void ForgetPrefixes();

 private:
  mutable Mutex mutex_;
  PrefixRoutes prefixes_;                               // guarded, except Chain()
  std::vector<int64_t> unfinished_ GUARDED_BY(mutex_);  // tokens of unfinished requests, by engine
  // The engine that is chosen next if several have equal work.
  int next_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
