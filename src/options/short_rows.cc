#include "options/rows.h"

namespace sluice::options {

std::vector<Option> RowsLike(const Option& common, std::initializer_list<ShortRow> rows) {
  std::vector<Option> result;
  for (const ShortRow& row : rows) {
    Option option = common;
    option.name = row.name;
    option.type = row.choices.empty() ? row.type : Type::kChoice;
    option.help = row.help;
    option.default_value = row.default_value;
    if (option.type == Type::kFlag && row.default_value.empty()) option.default_value = "false";
    option.choices = row.choices;
    option.aliases = row.aliases;
    result.push_back(option);
  }
  return result;
}

}  // namespace sluice::options
