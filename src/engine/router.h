// Chooses which of several engines computes a request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "engine/prefix_routes.h"
#include "engine/request.h"

namespace sluice {

// The engine that would be done first: the one with the fewest tokens left to compute, the prompt
// counted without what its cache is likely to have of it. So a request goes where its prefix is
// unless that engine has more to do than the prefix saves. Between equals the engines take turns.
//
// Of an answer, at most kExpectedTokens count, since most end long before max_tokens.
//
// Thread safety: all methods may be called from any thread.
class Router {
 public:
  static constexpr int64_t kExpectedTokens = 256;

  // As PrefixRoutes; `num_blocks` is 0 where engines have no prefix cache.
  Router(int num_engines, int block_size, int64_t num_blocks);

  struct Route {
    int engine = 0;
    int64_t prompt_tokens = 0;  // that it is expected to compute
    int64_t output_tokens = 0;
    int64_t tokens() const { return prompt_tokens + output_tokens; }
  };
  // Chooses among the engines that may be chosen, and counts the request there as unfinished.
  // REQUIRES: there is one.
  Route Choose(const Request& request, std::span<const bool> may_be_chosen);
  // So many of its tokens are finished, or will not be computed.
  void Finish(int engine, int64_t tokens);
  int64_t unfinished_tokens(int engine) const;
  // The engines' caches are empty.
  void ForgetPrefixes();

 private:
  mutable Mutex mutex_;
  PrefixRoutes prefixes_;                               // guarded but for Chain()
  std::vector<int64_t> unfinished_ GUARDED_BY(mutex_);  // tokens, by engine
  int next_ GUARDED_BY(mutex_) = 0;                     // whose turn it is
};

}  // namespace sluice
