// The treatment of a split step's matches: keep, remove or merge them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"

namespace sluice {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Parses a name used in tokenizer.json ("MergedWithNext").
std::optional<SplitBehavior> ParseSplitBehavior(std::string_view name);

// Turns matches and gaps, which cover a text in order, into pieces. Leaves is_match unspecified.
void ApplySplitBehavior(SplitBehavior behavior, std::vector<Span>& spans);

}  // namespace sluice
