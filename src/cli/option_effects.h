// The effects of the given options with their values.
#pragma once

#include <string>
#include <vector>

#include "options/settings.h"

namespace sluice::cli {

struct OptionEffects {
  // Options and keys with the same reason, such as "--port 8080" and "NCCL_DEBUG".
  struct Group {
    std::string reason;  // for mapped options, the target
    std::vector<std::string> what;
  };
  std::vector<std::string> acting;
  std::vector<Group> mapped;
  std::vector<Group> unanswered;  // options without effect, although their values request something
  std::vector<Group> idle;        // options without effect that request nothing
};

// Returns the effects of the given options. An option that has an effect according to the table
// still counts as without effect if its needs are not met (Option::needs), if none of its keys has
// an effect (Option::keys), or if this program does not implement its value.
OptionEffects EffectsOf(const options::Settings& settings);

}  // namespace sluice::cli
