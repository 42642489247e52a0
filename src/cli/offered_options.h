// The options that act, as completion scripts and the manual page list them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "options/option.h"

namespace sluice::cli {

struct OfferedOption {
  const options::Option* option = nullptr;
  // With dashes; the first is the one to write. Of a flag the form that changes its default.
  std::vector<std::string> flags = {};
  std::vector<std::string_view> values = {};  // words that it takes; others may be legal, too

  bool TakesValue() const { return option->type != options::Type::kFlag; }
};

// The options of the subcommands `commands` (bits) under the name sluice, in the table's order.
// Leaves out options without an effect and those that are refused with any value.
std::vector<OfferedOption> OfferedOptions(uint32_t commands);

}  // namespace sluice::cli
