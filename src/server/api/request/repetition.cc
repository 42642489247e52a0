#include "server/api/request/repetition.h"

#include <algorithm>
#include <cstddef>

namespace sluice {
namespace {

// Tokens are dropped in bulk instead of one at a time.
constexpr size_t kSlack = 64;

}  // namespace

bool RepetitionWatch::Push(int32_t token) {
  if (rule_.max_size <= 0 || rule_.min_count < 2) return false;
  tokens_.push_back(token);
  const size_t count = static_cast<size_t>(rule_.min_count);
  const size_t longest = static_cast<size_t>(rule_.max_size) * count;
  if (tokens_.size() >= 2 * longest + kSlack)
    tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(longest));
  const size_t size = tokens_.size();
  for (int64_t length = std::max<int64_t>(rule_.min_size, 1); length <= rule_.max_size; ++length) {
    const size_t pattern = static_cast<size_t>(length);
    const size_t span = pattern * count;
    if (span > size) return false;
    bool same = true;
    for (size_t i = size; i-- > size - span + pattern && same;)
      same = tokens_[i] == tokens_[i - pattern];
    if (same) return true;
  }
  return false;
}

}  // namespace sluice
