// What a split does with its matches.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"

namespace sluice {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Parses a name in tokenizer.json ("MergedWithNext").
std::optional<SplitBehavior> ParseSplitBehavior(std::string_view name);

// Turns matches and gaps, which cover a text in order, into pieces. Afterwards is_match is
// unspecified.
void ApplySplitBehavior(SplitBehavior behavior, std::vector<Span>& spans);

}  // namespace sluice
