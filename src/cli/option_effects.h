// What the options that were given do, with the values that they have.
#pragma once

#include <string>
#include <vector>

#include "options/settings.h"

namespace sluice::cli {

struct OptionEffects {
  // Options and keys with one reason, such as "--port 8080" and "NCCL_DEBUG".
  struct Group {
    std::string reason;  // of mapped ones: to what
    std::vector<std::string> what;
  };
  std::vector<std::string> acting;
  std::vector<Group> mapped;
  std::vector<Group> unanswered;  // without effect, though their values ask for something
  std::vector<Group> idle;        // without effect, and nothing is asked for
};

// An option that acts by the table counts as without effect where what it needs is not given
// (Option::needs), where none of its keys acts (Option::keys), or where its value is one that this
// program does not have.
OptionEffects EffectsOf(const options::Settings& settings);

}  // namespace sluice::cli
