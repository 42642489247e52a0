// The options that have an effect, for completion scripts and the manual page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "options/option.h"

namespace sluice::cli {

struct OfferedOption {
  const options::Option* option = nullptr;
  // Flags with dashes, the preferred one first. For an on/off flag, the form that changes its
  // default.
  std::vector<std::string> flags = {};
  std::vector<std::string_view> values = {};  // suggested values; others may also be valid

  bool TakesValue() const { return option->type != options::Type::kFlag; }
};

// Returns the options of the subcommands `commands` (bits) under the name sluice, in table order.
// Excludes options without an effect, and options that refuse every value.
std::vector<OfferedOption> OfferedOptions(options::Commands commands);

}  // namespace sluice::cli
