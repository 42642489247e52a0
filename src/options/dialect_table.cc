#include "options/dialect_table.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"
#include "options/values.h"

namespace sluice::options {
namespace {

tl::unexpected<Error> BadRow(std::string message) {
  return Fail(ErrorCode::kInvalidData, std::move(message));
}

// Removes the part before `separator`, and the separator, from `text`. Returns the part; if there
// is no separator, all of `text`.
std::string_view TakeUntil(std::string_view& text, std::string_view separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + separator.size(), text.size()));
  return part;
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::vector<std::string_view> Columns(std::string_view line) {
  std::vector<std::string_view> columns;
  while (!line.empty()) columns.push_back(TakeUntil(line, " | "));
  return columns;
}

class Parser {
 public:
  Status Read(const DialectFile& file) {
    only_ = kAllDialects;
    keys_ = nullptr;
    commands_ = 0;
    std::string_view rest = file.text;
    for (int number = 1; !rest.empty(); ++number) {
      if (const Status status = ReadLine(TakeUntil(rest, "\n")); !status) {
        return BadRow(fmt::format("{}:{}: {}", file.name, number, status.error().message));
      }
    }
    return {};
  }

  DialectTable Finish() { return std::move(table_); }

 private:
  Status ReadLine(std::string_view line) {
    if (line.empty() || line.starts_with('#')) return {};
    if (TakePrefix(line, "reason ")) {
      const std::string_view name = TakeUntil(line, ": ");
      if (line.empty()) return BadRow("expected reason NAME: TEXT");
      if (!reasons_.emplace(name, line).second)
        return BadRow(fmt::format("reason {} is defined twice", name));
      return {};
    }
    if (line == "dialect trtllm-serve") {
      only_ = DialectBit(Dialect::kTrtllm);
      return {};
    }
    if (line.starts_with('[')) return ReadSection(line);
    const std::vector<std::string_view> columns = Columns(line);
    if (keys_ != nullptr) return ReadKey(columns);
    if (commands_ != 0) return ReadOption(columns);
    return BadRow("expected a section in brackets before the first row");
  }

  Status ReadSection(std::string_view line) {
    if (!line.ends_with(']')) return BadRow("expected ] at the end of a section");
    line = line.substr(1, line.size() - 2);
    keys_ = nullptr;
    commands_ = 0;
    if (line == "keys of --compilation-config") keys_ = &table_.compilation_keys;
    if (line == "keys of the YAML file") keys_ = &table_.yaml_keys;
    if (line == "environment") keys_ = &table_.variables;
    if (keys_ != nullptr) return {};
    group_ = TakeUntil(line, ": ");
    while (!line.empty()) {
      const std::string_view name = TakeUntil(line, ", ");
      const auto names = CommandNames();
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) return BadRow(fmt::format("unknown command '{}'", name));
      commands_ |= Commands{1} << (found - names.begin());
    }
    if (commands_ == 0) return BadRow(fmt::format("unknown section '{}' without commands", group_));
    return {};
  }

  // Parses "no effect: one-device" into effect and text.
  Status ReadEffect(std::string_view column, Effect& effect, std::string_view& text) const {
    const std::string_view name = TakeUntil(column, ": ");
    bool known = false;
    for (const Effect each :
         {Effect::kActs, Effect::kMapped, Effect::kNoEffect, Effect::kRefused}) {
      if (name != EffectName(each)) continue;
      effect = each;
      known = true;
    }
    if (!known || column.empty())
      return BadRow(fmt::format("expected EFFECT: REASON, found '{}'", name));
    text = column;
    if (effect == Effect::kActs || effect == Effect::kMapped) return {};
    const auto reason = reasons_.find(column);
    if (reason == reasons_.end()) return BadRow(fmt::format("unknown reason '{}'", column));
    text = reason->second;
    return {};
  }

  Status ReadKey(const std::vector<std::string_view>& columns) {
    if (columns.size() != 2)
      return BadRow(fmt::format("expected 2 columns, found {}", columns.size()));
    DialectKey key;
    key.earlier = columns[0];
    key.name = TakeUntil(key.earlier, " ");
    RETURN_IF_ERROR(ReadEffect(columns[1], key.effect, key.text));
    for (const DialectKey& other : *keys_) {
      if (other.name == key.name) return BadRow(fmt::format("{} is listed twice", key.name));
    }
    keys_->push_back(key);
    return {};
  }

  Status ReadOption(const std::vector<std::string_view>& columns) {
    if (columns.size() < 4)
      return BadRow(fmt::format("expected at least 4 columns, found {}", columns.size()));
    Option option{.group = group_, .commands = commands_, .help = columns[3], .dialects = only_};
    std::string_view names = columns[0];
    option.name = TakeUntil(names, " ");
    while (!names.empty()) {
      std::string_view word = TakeUntil(names, " ");
      if (TakePrefix(word, "flag:--")) {
        option.flag = word;
      } else if (TakePrefix(word, "trtllm:")) {
        option.trtllm = word;
      } else if (word.starts_with('-')) {
        option.aliases = word;
      } else {
        return BadRow(fmt::format("expected a flag, found '{}'", word));
      }
    }
    RETURN_IF_ERROR(ReadEffect(columns[1], option.effect, option.reason));
    if (option.effect != Effect::kNoEffect && option.effect != Effect::kRefused)
      return BadRow("an option that acts is a row of code");
    RETURN_IF_ERROR(ReadType(columns[2], option));
    for (size_t i = 4; i < columns.size(); ++i) RETURN_IF_ERROR(ReadAttribute(columns[i], option));
    for (const Option& other : table_.options) {
      if (other.name == option.name) return BadRow(fmt::format("{} is listed twice", option.name));
    }
    table_.options.push_back(option);
    return {};
  }

  static Status ReadType(std::string_view column, Option& option) {
    std::string_view type = TakeUntil(column, " = ");
    option.default_value = column;
    if (TakePrefix(type, "choice ")) {
      option.type = Type::kChoice;
      option.choices = type;
      return {};
    }
    for (const Type each : {Type::kFlag, Type::kString, Type::kStrings, Type::kInteger, Type::kSize,
                            Type::kNumber, Type::kJson}) {
      if (type != TypeName(each)) continue;
      option.type = each;
      if (each == Type::kFlag && column.empty()) option.default_value = "false";
      return {};
    }
    return BadRow(fmt::format("unknown type '{}'", type));
  }

  static Status ReadAttribute(std::string_view column, Option& option) {
    if (column == "secret") {
      option.secret = true;
    } else if (column == "value optional") {
      option.value_optional = true;
    } else if (TakePrefix(column, "accepts ")) {
      option.words = column;
    } else if (column.starts_with("retired before ") && column.find(": ") != column.npos) {
      column.remove_prefix(std::string_view("retired ").size());
      option.retired = column;
    } else if (TakePrefix(column, "range ")) {
      ASSIGN_OR_RETURN(option.range.min, ParseNumber(TakeUntil(column, " ")));
      ASSIGN_OR_RETURN(option.range.max, ParseNumber(column));
    } else {
      return BadRow(fmt::format("unknown attribute '{}'", column));
    }
    return {};
  }

  std::map<std::string_view, std::string_view> reasons_;
  uint32_t only_ = kAllDialects;
  // The keys of the current section; null in a section of options.
  std::vector<DialectKey>* keys_ = nullptr;
  std::string_view group_;
  Commands commands_ = 0;
  DialectTable table_;
};

}  // namespace

Result<DialectTable> ParseDialects(std::span<const DialectFile> files) {
  Parser parser;
  for (const DialectFile& file : files) RETURN_IF_ERROR(parser.Read(file));
  return parser.Finish();
}

const DialectTable& Dialects() {
  static const DialectTable table = [] {
    auto parsed = ParseDialects(DialectFiles());
    CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return table;
}

bool IsForeign(const Option& option) {
  return std::ranges::any_of(Dialects().options,
                             [&](const Option& row) { return row.name == option.name; });
}

bool IsIdle(const Option& option, const std::vector<std::string>& words) {
  if (IsForeign(option)) return true;
  if (option.acting.empty()) return false;
  const std::vector<std::string_view> acting = Split(option.acting, '|');
  return std::ranges::find(acting, words[0]) == acting.end();
}

}  // namespace sluice::options
