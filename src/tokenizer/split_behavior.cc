#include "tokenizer/split_behavior.h"

#include <algorithm>

namespace sluice {

std::optional<SplitBehavior> ParseSplitBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return std::nullopt;
}

void ApplySplitBehavior(SplitBehavior behavior, std::vector<Span>& spans) {
  switch (behavior) {
    case SplitBehavior::kIsolated: return;
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.is_match; });
      return;
    case SplitBehavior::kMergedWithNext: std::reverse(spans.begin(), spans.end()); break;
    default: break;
  }
  // Merges spans into the previous one where they belong together, in reading order (reversed for
  // kMergedWithNext).
  size_t out = 0;
  bool previous_match = false;
  for (const Span span : spans) {
    const bool joins = behavior == SplitBehavior::kContiguous ? span.is_match == previous_match
                                                              : span.is_match && !previous_match;
    if (joins && out > 0) {
      spans[out - 1].begin = std::min(spans[out - 1].begin, span.begin);
      spans[out - 1].end = std::max(spans[out - 1].end, span.end);
    } else {
      spans[out++] = span;
    }
    previous_match = span.is_match;
  }
  spans.resize(out);
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(spans.begin(), spans.end());
}

}  // namespace sluice
