#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/suggest.h"
#include "options/dotted.h"
#include "options/names.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::options {
namespace {

tl::unexpected<Error> BadArgument(std::string message, std::string param) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

// -1 and -.5 are values, not options.
bool LooksLikeOption(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  return !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

// Parses a dotted value: JSON if possible, else a number with a unit, else text.
json::Value DottedValue(const std::string& word) {
  if (auto value = json::Parse(word)) return *std::move(value);
  if (word == "True" || word == "False") return json::Value(word == "True");
  if (word == "None") return json::Value();
  if (auto integer = ParseInteger(word)) return json::Value(*integer);
  return json::Value(word);
}

// Returns the value that `--option.path word` sets. If the path ends with +, the value is a list of
// comma-separated words.
json::Value DottedValue(std::string_view path, const std::string& word) {
  if (!path.ends_with('+')) return DottedValue(word);
  json::Value::Array items;
  for (std::string_view item : Split(word, ',')) items.push_back(DottedValue(std::string(item)));
  return json::Value(std::move(items));
}

// A one-letter option may be followed directly by its value: -O3, -qfp8.
bool IsAttached(std::string_view word, const Names& names) {
  return word.size() > 2 && word[0] == '-' && word[1] != '-' && word[2] != '=' && word[2] != '.' &&
         names.Lookup(word.substr(0, 2), false) && !names.Lookup(word, false) &&
         !names.Lookup(word.substr(0, word.find_first_of(".=")), false);
}

class Reader {
 public:
  Reader(const std::vector<std::string>& words, Commands commands, Dialect dialect)
      : words_(words), names_(commands, dialect), dialect_(dialect) {}

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
      const size_t first = next_ - 1;
      is_secret_ = false;
      RETURN_IF_ERROR(ReadOption(word));
      for (size_t place = first; is_secret_ && place < next_; ++place)
        result_.secrets.push_back(place);
    }
    if (!unknown_.empty()) {
      return BadArgument(fmt::format("unrecognized arguments: {}{}", fmt::join(unknown_, " "),
                                     DidYouMean(Fold(unknown_[0]), names_.all())),
                         unknown_[0]);
    }
    for (auto& [option, object] : dotted_) {
      result_.assignments.push_back({option,
                                     {json::Write(object)},
                                     Source::kFlag,
                                     "--" + std::string(FlagName(*option)) + ".*"});
    }
    return std::move(result_);
  }

 private:
  // The value of -O is a level or, in its older form, compiler settings.
  static std::string Unfold(const std::string& word) {
    if (!word.starts_with("-O")) return word;
    const std::string rest = word.substr(word.size() > 2 && word[2] == '=' ? 3 : 2);
    if (rest.starts_with('.')) return "--compilation-config" + rest;
    if (rest.starts_with('{')) return "--compilation-config=" + rest;
    return rest.empty() ? "--optimization-level" : "--optimization-level=" + rest;
  }

  Status ReadOption(const std::string& written) {
    std::string word = Unfold(written);
    if (word == "--optimization-level" && next_ < words_.size() && words_[next_].starts_with('{'))
      word = "--compilation-config";
    if (IsAttached(word, names_)) word.insert(2, "=");
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
      if (!value && next_ < words_.size() && !LooksLikeOption(words_[next_]))
        value = words_[next_++];
      result_.help = value.value_or("");
      return {};
    }
    const auto spelling = names_.Lookup(flag, /*abbreviations=*/true);
    if (!spelling) return Unknown(flag);
    const Option& option = *spelling->option;
    is_secret_ = option.secret;

    if (!path.empty()) {
      if (option.type != Type::kJson)
        return BadArgument(fmt::format("{} takes no keys after a dot", flag), flag);
      if (!value && next_ < words_.size()) value = words_[next_++];
      if (!value) return MissingValue(option, word);
      auto place =
          std::find_if(dotted_.begin(), dotted_.end(), [&](auto& d) { return d.first == &option; });
      if (place == dotted_.end())
        place = dotted_.insert(place, {&option, json::Value(json::Value::Object{})});
      if (const Status set = SetDotted(place->second, path, DottedValue(path, *value)); !set)
        return BadArgument(fmt::format("{}: {}", flag, set.error().message), flag);
      return {};
    }
    SayRepeated(option, flag);
    if (option.type == Type::kFlag) return ReadFlag(*spelling, flag, value);
    return ReadValue(option, flag, std::move(value));
  }

  void SayRepeated(const Option& option, const std::string& flag) {
    const bool before =
        std::any_of(result_.assignments.begin(), result_.assignments.end(),
                    [&](const Assignment& assignment) { return assignment.option == &option; });
    if (before && option.type != Type::kStrings) {
      result_.notes.push_back(
          {Note::Kind::kWarning, flag, "is given more than once; the last value is used"});
    }
  }

  Status ReadFlag(const Spelling& spelling, const std::string& flag,
                  const std::optional<std::string>& value) {
    bool on = true;
    if (value) {
      auto parsed = ParseFlag(*value);
      if (!parsed) {
        return BadArgument(
            fmt::format("{}: {}{}", flag, parsed.error().message, Taken(*spelling.option, flag)),
            flag);
      }
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
      // The value of a string option may begin with a dash, unless it is a known option.
      const std::string& word = words_[next_];
      if (!LooksLikeOption(word) || (!names_.Lookup(word, false) && !option.value_optional))
        values.push_back(words_[next_++]);
    }
    if (values.empty() && option.value_optional) values.emplace_back("true");
    if (values.empty()) return MissingValue(option, flag);
    auto checked = CheckWords(option, values);
    if (!checked) {
      // vLLM's parser accepts any number; a value out of range fails later, with another exit code.
      const bool number = option.type == Type::kInteger || option.type == Type::kSize ||
                          option.type == Type::kNumber;
      const bool late = dialect_ == Dialect::kVllm && number && ParseNumber(values[0]).has_value();
      std::string message = fmt::format("{}: {}", flag, checked.error().message);
      // Adds the help text, because the range alone does not explain what the number means.
      if (number) {
        message +=
            fmt::format(" ({})", option.help.substr(0, option.help.find_last_not_of('.') + 1));
      }
      return Fail(late ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
                  message + Taken(option, flag), flag);
    }
    result_.assignments.push_back({&option, *std::move(checked), Source::kFlag, flag});
    return {};
  }

  Status Unknown(const std::string& flag) {
    const auto completions = names_.Completions(flag);
    if (completions.size() > 1 && flag.size() > 3) {
      return BadArgument(
          fmt::format("ambiguous option: {} could be {}", flag, fmt::join(completions, ", ")),
          flag);
    }
    unknown_.push_back(flag);
    return {};
  }

  static tl::unexpected<Error> MissingValue(const Option& option, const std::string& flag) {
    return BadArgument(fmt::format("{}: expected a value ({}){}", flag, TypeName(option.type),
                                   Taken(option, flag)),
                       flag);
  }

  // Returns the end of an error message about an abbreviated flag: it names the option that the
  // flag matched.
  static std::string Taken(const Option& option, const std::string& flag) {
    const std::string taken = TakenFor(flag.substr(0, flag.find_first_of(".=")), option);
    return taken.empty() ? "" : "; " + taken;
  }

  const std::vector<std::string>& words_;
  const Names names_;
  const Dialect dialect_;
  size_t next_ = 0;
  bool is_secret_ = false;  // whether the last option read is secret
  CommandLine result_;
  std::vector<std::string> unknown_;
  std::vector<std::pair<const Option*, json::Value>> dotted_;
};

}  // namespace

Result<CommandLine> ReadCommandLine(const std::vector<std::string>& words, Commands commands,
                                    Dialect dialect) {
  return Reader(words, commands, dialect).Read();
}

}  // namespace sluice::options
