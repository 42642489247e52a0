#include "base/text_search.h"

#include <algorithm>

namespace sluice {
namespace {

// Maximum length of needles that are compared at each position; for longer needles, preprocessing
// pays off.
constexpr size_t kMaxComparedBytes = 16;

// The bytes of a text in the order of the search: from first to last, or from last to first if the
// search is backwards.
template <bool kBackwards>
struct SearchOrder {
  std::string_view text;
  size_t size() const { return text.size(); }
  unsigned char operator[](size_t i) const {
    return static_cast<unsigned char>(text[kBackwards ? text.size() - 1 - i : i]);
  }
};

struct Suffix {
  size_t begin = 0;
  size_t period = 1;
};

// Returns the largest suffix in byte order (in reversed order if `is_opposite`), and its period.
template <typename Text>
Suffix LargestSuffix(const Text& text, bool is_opposite) {
  Suffix best;
  size_t candidate = 1;
  size_t matched = 0;
  while (candidate + matched < text.size()) {
    const unsigned char a = text[candidate + matched];
    const unsigned char b = text[best.begin + matched];
    if (a == b) {
      if (++matched == best.period) {
        candidate += best.period;
        matched = 0;
      }
    } else if ((a < b) != is_opposite) {
      candidate += matched + 1;
      matched = 0;
      best.period = candidate - best.begin;
    } else {
      best = {candidate, 1};
      ++candidate;
      matched = 0;
    }
  }
  return best;
}

}  // namespace

template <bool kBackwards>
BasicTextSearcher<kBackwards>::BasicTextSearcher(std::string_view needle) : needle_(needle) {
  if (needle.size() <= kMaxComparedBytes) return;
  const SearchOrder<kBackwards> ordered{needle};
  const Suffix one = LargestSuffix(ordered, false);
  const Suffix other = LargestSuffix(ordered, true);
  const Suffix& later = one.begin > other.begin ? one : other;
  cut_ = later.begin;
  is_periodic_ = true;
  for (size_t i = 0; i < cut_ && is_periodic_; ++i)
    is_periodic_ = ordered[i] == ordered[i + later.period];
  shift_ = is_periodic_ ? later.period : std::max(cut_, needle.size() - cut_) + 1;
}

template <bool kBackwards>
size_t BasicTextSearcher<kBackwards>::Find(std::string_view text) const {
  if (needle_.size() <= kMaxComparedBytes)
    return kBackwards ? text.rfind(needle_) : text.find(needle_);
  const SearchOrder<kBackwards> needle{needle_};
  const SearchOrder<kBackwards> ordered{text};
  const size_t size = needle.size();
  size_t known = 0;  // Number of leading bytes of the needle that are known to match at `at`
  for (size_t at = 0; at + size <= text.size();) {
    size_t i = std::max(cut_, known);
    while (i < size && needle[i] == ordered[at + i]) ++i;
    if (i < size) {
      at += i - cut_ + 1;
      known = 0;
      continue;
    }
    i = cut_;
    while (i > known && needle[i - 1] == ordered[at + i - 1]) --i;
    if (i <= known) return kBackwards ? text.size() - size - at : at;
    at += shift_;
    known = is_periodic_ ? size - shift_ : 0;
  }
  return std::string_view::npos;
}

template class BasicTextSearcher<false>;
template class BasicTextSearcher<true>;

}  // namespace sluice
