#include "cli/offered_options.h"

#include <fmt/format.h>

#include "options/values.h"

namespace sluice::cli {

std::vector<OfferedOption> OfferedOptions(options::Commands commands) {
  using options::Effect;
  std::vector<OfferedOption> offered;
  for (const options::Option& option : options::Table()) {
    if ((option.commands & commands) == 0) continue;
    if ((option.dialects & options::DialectBit(options::Dialect::kSluice)) == 0) continue;
    const bool partly = option.effect == Effect::kRefused && !option.words.empty();
    if (option.effect != Effect::kActs && !partly) continue;
    OfferedOption item{.option = &option};
    const std::string_view name = options::FlagName(option);
    const bool is_flag = option.type == options::Type::kFlag;
    if (!is_flag || option.default_value != "true") item.flags.push_back(fmt::format("--{}", name));
    if (is_flag && option.default_value != "false")
      item.flags.push_back(fmt::format("--no-{}", name));
    for (std::string_view alias : options::Split(option.aliases, '|'))
      item.flags.emplace_back(alias);
    // For a partly refused option, `words` are the accepted choices. For other options, `words` are
    // accepted in addition to numbers.
    if (option.type == options::Type::kChoice && !partly) {
      item.values = options::Split(option.choices, '|');
    } else {
      item.values = options::Split(option.words, '|');
    }
    offered.push_back(std::move(item));
  }
  return offered;
}

}  // namespace sluice::cli
