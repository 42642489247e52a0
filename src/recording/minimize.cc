#include "recording/minimize.h"

#include <algorithm>
#include <cstddef>

namespace sluice::recording {

std::vector<uint64_t> Minimize(const std::vector<uint64_t>& all,
                               const std::function<bool(const std::vector<uint64_t>&)>& shows,
                               int64_t most_trials) {
  std::vector<uint64_t> best = all;
  size_t num_parts = 2;
  while (best.size() >= 2 && most_trials > 0) {
    num_parts = std::min(num_parts, best.size());
    const auto bound = [&](size_t part) {
      return best.begin() + static_cast<std::ptrdiff_t>(best.size() * part / num_parts);
    };
    bool is_smaller = false;
    for (const bool is_complement : {false, true}) {
      // With two parts, the complements are the parts themselves.
      if (is_complement && num_parts == 2) break;
      for (size_t part = 0; part < num_parts && most_trials > 0; ++part) {
        std::vector<uint64_t> subset;
        if (is_complement) {
          subset.assign(best.begin(), bound(part));
          subset.insert(subset.end(), bound(part + 1), best.end());
        } else {
          subset.assign(bound(part), bound(part + 1));
        }
        --most_trials;
        if (!shows(subset)) continue;
        best = std::move(subset);
        num_parts = is_complement ? std::max<size_t>(num_parts - 1, 2) : 2;
        is_smaller = true;
        break;
      }
      if (is_smaller) break;
    }
    if (is_smaller) continue;
    if (num_parts >= best.size()) break;
    num_parts *= 2;
  }
  return best;
}

}  // namespace sluice::recording
