// From spellings to options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "options/option.h"

namespace sluice::options {

// An option under one of its spellings.
struct Spelling {
  const Option* option = nullptr;
  bool negated = false;  // --no-x
};

// Every spelling that `commands` know in `dialect`, with dashes ("--max-model-len", "-tp"); names
// fold _ to -.
class Names {
 public:
  Names(uint32_t commands, Dialect dialect);

  // `flag` as written, with its dashes; an unambiguous beginning of a long name counts where
  // `abbreviations` is true.
  std::optional<Spelling> Lookup(std::string_view flag, bool abbreviations) const;
  // Those that `flag` is a beginning of.
  std::vector<std::string> Completions(std::string_view flag) const;
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, Spelling>> spellings_;
  std::vector<std::string> all_;
};

// "--prot was taken for --protect-all" where `flag`, as written, is a beginning of a name of
// `option`; "" where it is a whole name of it.
std::string TakenFor(std::string_view flag, const Option& option);

// _ as - in the name of a flag.
std::string Fold(std::string_view flag);

}  // namespace sluice::options
