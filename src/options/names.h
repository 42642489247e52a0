// Finds options by their spellings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "options/option.h"

namespace sluice::options {

// An option, and the way in which a name on the command line refers to it.
struct Spelling {
  const Option* option = nullptr;
  bool negated = false;  // whether the spelling is --no-x
};

// All spellings, with dashes ("--max-model-len", "-tp"), that `commands` have in `dialect`. In a
// flag, _ counts as -.
class Names {
 public:
  Names(Commands commands, Dialect dialect);

  // `flag`: as the user wrote it, with dashes. With `abbreviations`, also accepts an unambiguous
  // prefix of a long name.
  std::optional<Spelling> Lookup(std::string_view flag, bool abbreviations) const;
  // Returns the names that begin with `flag`.
  std::vector<std::string> Completions(std::string_view flag) const;
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, Spelling>> spellings_;
  std::vector<std::string> all_;
};

// Returns "--prot was taken for --protect-all" if `flag`, as the user wrote it, abbreviates a name
// of `option`; "" if it is a full name.
std::string TakenFor(std::string_view flag, const Option& option);

// Replaces _ by - in the name of a flag.
std::string Fold(std::string_view flag);

}  // namespace sluice::options
