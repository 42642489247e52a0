#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "options/names.h"
#include "options/sources.h"
#include "options/suggest.h"
#include "options/values.h"

namespace sluice::options {
namespace {

tl::unexpected<Error> Bad(std::string message, std::string param) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

// -1 and -.5 are values, not options.
bool LooksLikeOption(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  return !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

// A dotted value is JSON where it can be, else a number as people write it, else text.
json::Value DottedValue(const std::string& word) {
  if (auto value = json::Parse(word)) return *std::move(value);
  if (auto integer = ParseInteger(word)) return json::Value(*integer);
  return json::Value(word);
}

void SetDotted(json::Value& object, std::string_view path, json::Value value) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) {
    object.Set(path, std::move(value));
    return;
  }
  const std::string_view key = path.substr(0, dot);
  const json::Value* old = object.Find(key);
  json::Value inner =
      old != nullptr && old->is_object() ? *old : json::Value(json::Value::Object{});
  SetDotted(inner, path.substr(dot + 1), std::move(value));
  object.Set(key, std::move(inner));
}

class Reader {
 public:
  Reader(const std::vector<std::string>& words, uint32_t commands, Dialect dialect)
      : words_(words), names_(commands, dialect) {}

  Result<CommandLine> Read() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (word == "--") {
        result_.positionals.insert(result_.positionals.end(),
                                   words_.begin() + static_cast<long>(next_), words_.end());
        break;
      }
      if (!LooksLikeOption(word)) {
        result_.positionals.push_back(word);
        continue;
      }
      RETURN_IF_ERROR(ReadOption(word));
    }
    for (auto& [option, object] : dotted_) {
      result_.assignments.push_back(
          {option, {json::Write(object)}, Source::kFlag, "--" + std::string(option->name) + ".*"});
    }
    return std::move(result_);
  }

 private:
  Status ReadOption(const std::string& word) {
    const size_t end = word.find_first_of(".=");
    const std::string flag = word.substr(0, end);
    std::string path;
    std::optional<std::string> value;
    if (end != std::string::npos) {
      const size_t equals = word.find('=', end);
      path = word[end] == '.'
                 ? word.substr(end + 1, equals == std::string::npos ? equals : equals - end - 1)
                 : "";
      if (equals != std::string::npos) value = word.substr(equals + 1);
    }
    if (flag == "-h" || flag == "--help") {
      result_.help = value.value_or("");
      return {};
    }
    const auto spelling = names_.Lookup(flag, /*abbreviations=*/true);
    if (!spelling) return Unknown(flag);
    const Option& option = *spelling->option;

    if (!path.empty()) {
      if (option.type != Type::kJson)
        return Bad(fmt::format("{} takes no keys after a dot", flag), flag);
      if (!value && next_ < words_.size()) value = words_[next_++];
      if (!value) return Bad(fmt::format("{} expects a value", word), flag);
      auto place =
          std::find_if(dotted_.begin(), dotted_.end(), [&](auto& d) { return d.first == &option; });
      if (place == dotted_.end())
        place = dotted_.insert(place, {&option, json::Value(json::Value::Object{})});
      SetDotted(place->second, path, DottedValue(*value));
      return {};
    }
    if (option.type == Type::kFlag) return ReadFlag(*spelling, flag, value);
    return ReadValue(option, flag, std::move(value));
  }

  Status ReadFlag(const Spelling& spelling, const std::string& flag,
                  const std::optional<std::string>& value) {
    bool on = true;
    if (value) {
      auto parsed = ParseFlag(*value);
      if (!parsed) return Bad(fmt::format("{}: {}", flag, parsed.error().message), flag);
      on = *parsed;
    }
    on = on != spelling.negated;
    result_.assignments.push_back({spelling.option, {on ? "true" : "false"}, Source::kFlag, flag});
    return {};
  }

  Status ReadValue(const Option& option, const std::string& flag,
                   std::optional<std::string> value) {
    std::vector<std::string> values;
    if (value) {
      values.push_back(*std::move(value));
    } else if (option.type == Type::kStrings) {
      while (next_ < words_.size() && !LooksLikeOption(words_[next_]))
        values.push_back(words_[next_++]);
    } else if (next_ < words_.size() &&
               (!LooksLikeOption(words_[next_]) || option.type == Type::kString)) {
      // A text may begin with a dash, but what is an option here is none.
      if (!LooksLikeOption(words_[next_]) || !names_.Lookup(words_[next_], false))
        values.push_back(words_[next_++]);
    }
    if (values.empty())
      return Bad(fmt::format("{} expects a value ({})", flag, TypeName(option.type)), flag);
    auto checked = CheckWords(option, std::move(values));
    if (!checked) return Bad(fmt::format("{}: {}", flag, checked.error().message), flag);
    result_.assignments.push_back({&option, *std::move(checked), Source::kFlag, flag});
    return {};
  }

  tl::unexpected<Error> Unknown(const std::string& flag) {
    const auto completions = names_.Completions(flag);
    if (completions.size() > 1 && flag.size() > 3) {
      return Bad(fmt::format("{} may mean {}", flag, fmt::join(completions, ", ")), flag);
    }
    return Bad(fmt::format("unknown option {}{}", flag, DidYouMean(Fold(flag), names_.all())),
               flag);
  }

  const std::vector<std::string>& words_;
  const Names names_;
  size_t next_ = 0;
  CommandLine result_;
  std::vector<std::pair<const Option*, json::Value>> dotted_;
};

}  // namespace

Result<CommandLine> ReadCommandLine(const std::vector<std::string>& words, uint32_t commands,
                                    Dialect dialect) {
  return Reader(words, commands, dialect).Read();
}

}  // namespace sluice::options
