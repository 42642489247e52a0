#include "cli/completion.h"

#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/offered_options.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using options::ValueKind;

// The completion of a command's positional argument.
struct Positional {
  enum Kind { kNothing, kWords, kFile, kModel } kind = kNothing;
  std::vector<std::string_view> words = {};
};

Positional PositionalOf(const Command& command) {
  const std::string_view arguments = command.arguments;
  if (command.max_positionals == 0) return {};
  if (arguments.find(' ') == std::string_view::npos &&
      arguments.find('|') != std::string_view::npos)
    return {Positional::kWords, options::Split(arguments, '|')};
  if (arguments.starts_with("FILE")) return {Positional::kFile};
  if (arguments.starts_with("MODEL") || arguments.starts_with("[MODEL"))
    return {Positional::kModel};
  return {};
}

// Returns the distinct first words of the commands, and "help".
std::vector<std::string_view> FirstWords() {
  std::vector<std::string_view> words;
  std::set<std::string_view> seen;
  for (const Command& command : Commands()) {
    const std::string_view word = command.name.substr(0, command.name.find(' '));
    if (seen.insert(word).second) words.push_back(word);
  }
  words.push_back("help");
  return words;
}

// Returns the second words of the commands whose first word is `first`; empty for one-word
// commands.
std::vector<std::string_view> SecondWords(std::string_view first) {
  std::vector<std::string_view> words;
  for (const Command& command : Commands()) {
    if (command.name.starts_with(first) && command.name.substr(first.size()).starts_with(' '))
      words.push_back(command.name.substr(first.size() + 1));
  }
  return words;
}

std::vector<std::string_view> HelpTopics() {
  std::vector<std::string_view> words = FirstWords();
  words.back() = "exit-codes";
  return words;
}

// Returns the part of a help text that fits into a list of completions.
std::string ShortText(std::string_view help) {
  size_t end = help.size();
  for (std::string_view mark : {". ", "; ", ": "}) end = std::min(end, help.find(mark));
  std::string_view text = help.substr(0, end);
  if (text.ends_with('.')) text.remove_suffix(1);
  return std::string(text);
}

std::string SummaryOf(std::string_view first_word) {
  for (const Command& command : Commands()) {
    if (command.name == first_word) return std::string(command.summary);
  }
  const std::vector<std::string_view> parts = SecondWords(first_word);
  return parts.empty() ? "help about a command" : fmt::format("{}", fmt::join(parts, ", "));
}

// Puts a backslash before each character in `special`, for text between single quotes in zsh. A
// single quote in `text` ends the quoting, is escaped, and starts the quoting again.
std::string QuotedForZsh(std::string_view text, std::string_view special) {
  std::string result;
  for (char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (c == '\\' || special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string QuotedForFish(std::string_view text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\\' || c == '\'') result += '\\';
    result += c;
  }
  return result + "'";
}

// Returns the branches of a bash `case` for the value after an option. Options with the same values
// share a branch.
std::string BashValues(const std::vector<OfferedOption>& offered) {
  std::vector<std::string> words, files, folders, models, plain;
  std::string result;
  for (const OfferedOption& item : offered) {
    if (!item.TakesValue()) continue;
    const std::string flags = fmt::format("{}", fmt::join(item.flags, " | "));
    if (!item.values.empty()) {
      result +=
          fmt::format("        {}) kind=words words='{}' ;;\n", flags, fmt::join(item.values, " "));
      continue;
    }
    switch (item.option->value) {
      case ValueKind::kPlain: plain.push_back(flags); break;
      case ValueKind::kFile: files.push_back(flags); break;
      case ValueKind::kFolder: folders.push_back(flags); break;
      case ValueKind::kModel: models.push_back(flags); break;
    }
  }
  const auto add = [&](const std::vector<std::string>& flags, std::string_view kind) {
    if (!flags.empty())
      result += fmt::format("        {}) kind={} ;;\n", fmt::join(flags, " | "), kind);
  };
  add(files, "file");
  add(folders, "folder");
  add(models, "model");
  add(plain, "nothing");
  return result;
}

std::string BashCommand(const Command& command) {
  const std::vector<OfferedOption> offered = OfferedOptions(command.bit);
  std::vector<std::string_view> flags;
  for (const OfferedOption& item : offered) flags.push_back(item.flags[0]);
  const Positional positional = PositionalOf(command);
  std::string result =
      fmt::format("    '{}')\n      words='{}'\n", command.name, fmt::join(flags, " "));
  switch (positional.kind) {
    case Positional::kNothing: break;
    case Positional::kWords:
      result += fmt::format("      [[ $current == -* ]] || words='{}'\n",
                            fmt::join(positional.words, " "));
      break;
    case Positional::kFile: result += "      [[ $current == -* ]] || kind=file\n"; break;
    case Positional::kModel: result += "      [[ $current == -* ]] || kind=model\n"; break;
  }
  const std::string values = BashValues(offered);
  return result + "      case $previous in\n" + values + "      esac\n      ;;\n";
}

// Returns the action for an option's value in zsh's _arguments.
std::string ZshAction(const OfferedOption& item) {
  if (!item.values.empty()) return fmt::format("({})", fmt::join(item.values, " "));
  switch (item.option->value) {
    case ValueKind::kPlain: return " ";
    case ValueKind::kFile: return "_files";
    case ValueKind::kFolder: return "_files -/";
    case ValueKind::kModel: return "_sluice_models";
  }
  return " ";
}

std::string ZshCommand(const Command& command) {
  std::string result = fmt::format("    '{}')\n      _arguments", command.name);
  for (const OfferedOption& item : OfferedOptions(command.bit)) {
    const std::string text = QuotedForZsh(ShortText(item.option->help), "[]");
    const std::string_view repeated = item.option->type == options::Type::kStrings ? "*" : "";
    for (const std::string& flag : item.flags) {
      result += fmt::format(" \\\n        '{}{}", repeated, flag);
      if (!item.TakesValue()) {
        result += fmt::format("[{}]'", text);
        continue;
      }
      const std::string_view equals = flag.starts_with("--") ? "=" : "";
      result += fmt::format("{}[{}]:{}:{}'", equals, text, options::TypeName(item.option->type),
                            ZshAction(item));
    }
  }
  const Positional positional = PositionalOf(command);
  switch (positional.kind) {
    case Positional::kNothing: break;
    case Positional::kWords:
      result += fmt::format(" \\\n        '1:word:({})'", fmt::join(positional.words, " "));
      break;
    case Positional::kFile: result += " \\\n        '*:file:_files'"; break;
    case Positional::kModel: result += " \\\n        '*:model:_sluice_models'"; break;
  }
  return result + "\n      ;;\n";
}

std::string ZshDescribed(const std::vector<std::string_view>& words, std::string_view first) {
  std::string result;
  for (std::string_view word : words) {
    const std::string name = first.empty() ? std::string(word) : fmt::format("{} {}", first, word);
    result += fmt::format(" '{}:{}'", word, QuotedForZsh(SummaryOf(name), ":"));
  }
  return result;
}

std::string FishOption(const Command& command, const OfferedOption& item) {
  std::string result = fmt::format("complete -c sluice -n '__sluice_command {}'", command.name);
  for (const std::string& flag : item.flags) {
    if (flag.starts_with("--")) {
      result += fmt::format(" -l {}", flag.substr(2));
    } else {
      result += fmt::format(" -{} {}", flag.size() == 2 ? "s" : "o", flag.substr(1));
    }
  }
  if (!item.values.empty()) {
    result += fmt::format(" -x -a '{}'", fmt::join(item.values, " "));
  } else if (item.TakesValue()) {
    switch (item.option->value) {
      case ValueKind::kPlain: result += " -x"; break;
      case ValueKind::kFile: result += " -r -F"; break;
      case ValueKind::kFolder: result += " -x -a '(__fish_complete_directories)'"; break;
      case ValueKind::kModel:
        result += " -x -a '(__sluice_models) (__fish_complete_directories)'";
        break;
    }
  }
  return result + " -d " + QuotedForFish(ShortText(item.option->help)) + "\n";
}

std::string FishCommand(const Command& command) {
  const size_t space = command.name.find(' ');
  std::string result;
  if (space != std::string_view::npos) {
    result += fmt::format(
        "complete -c sluice -n '__sluice_command {}; and __sluice_words 2' -a {} -d {}\n",
        command.name.substr(0, space), command.name.substr(space + 1),
        QuotedForFish(command.summary));
  }
  for (const OfferedOption& item : OfferedOptions(command.bit)) result += FishOption(command, item);
  const Positional positional = PositionalOf(command);
  const std::string here = fmt::format("complete -c sluice -n '__sluice_command {}'", command.name);
  switch (positional.kind) {
    case Positional::kNothing: break;
    case Positional::kWords:
      result += fmt::format("{} -a '{}'\n", here, fmt::join(positional.words, " "));
      break;
    case Positional::kFile: result += here + " -F\n"; break;
    case Positional::kModel:
      result += here + " -a '(__sluice_models) (__fish_complete_directories)'\n";
      break;
  }
  return result;
}

}  // namespace

std::string BashCompletion() {
  std::string result =
      R"sh(# Completion of sluice in bash, written by `sluice completion bash`: source it, or keep it as
# sluice in ~/.local/share/bash-completion/completions.
_sluice() {
  local program=$1 current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]} kind=words words=
  # In --option=value the = is a word of its own.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD == 1)); then
    command=
  elif ((COMP_CWORD > 2)); then
    case $command in
)sh";
  result += fmt::format(
      "      bench | recipe) command+=\" ${{COMP_WORDS[2]}}\" ;;\n    esac\n  fi\n"
      "  case $command in\n    '') words='{}' ;;\n    help) words='{}' ;;\n",
      fmt::join(FirstWords(), " "), fmt::join(HelpTopics(), " "));
  for (std::string_view first : FirstWords()) {
    const std::vector<std::string_view> parts = SecondWords(first);
    if (!parts.empty())
      result += fmt::format("    {}) words='{}' ;;\n", first, fmt::join(parts, " "));
  }
  for (const Command& command : Commands()) result += BashCommand(command);
  return result + R"sh(  esac
  COMPREPLY=()
  case $kind in
    words) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current") ;;
    file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    folder | model) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
  esac
  # Quotes what needs it, and adds / to folders.
  [[ $kind == words || ${#COMPREPLY[@]} == 0 ]] || compopt -o filenames 2>/dev/null
  if [[ $kind == model ]]; then
    local models
    models=$("$program" list 2>/dev/null | tail -n +2 | cut -d ' ' -f 1)
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$models" -- "$current")
  fi
}
complete -F _sluice sluice
)sh";
}

std::string ZshCompletion() {
  std::string result = R"sh(#compdef sluice
# Completion of sluice in zsh, written by `sluice completion zsh`: keep it as _sluice in a folder of
# $fpath, or source it after compinit.
_sluice_models() {
  local -a models
  models=(${(f)"$($sluice_program list 2>/dev/null | tail -n +2 | cut -d ' ' -f 1)"})
  _alternative 'models:model:compadd -a models' 'folders:folder:_files -/'
}

_sluice() {
  local sluice_program=$words[1] command=$words[2]
  local -a described
  if ((CURRENT == 2)); then
    described=()sh";
  result +=
      ZshDescribed(FirstWords(), "") + ")\n    _describe command described\n    return\n  fi\n";
  result += "  case $command in\n";
  for (std::string_view first : FirstWords()) {
    const std::vector<std::string_view> parts = SecondWords(first);
    if (parts.empty()) continue;
    result += fmt::format(
        "    {})\n      if ((CURRENT == 3)); then\n        described=({})\n"
        "        _describe command described\n        return\n      fi\n"
        "      command+=\" $words[3]\"\n      shift words\n      ((CURRENT--))\n"
        "      ;;\n",
        first, ZshDescribed(parts, first));
  }
  result += "  esac\n  shift words\n  ((CURRENT--))\n  case $command in\n";
  result += fmt::format("    help) compadd {} ;;\n", fmt::join(HelpTopics(), " "));
  for (const Command& command : Commands()) result += ZshCommand(command);
  return result + R"sh(  esac
}

# As a file of $fpath this is the body of _sluice itself, called for the first time.
if [[ $funcstack[1] == _sluice ]]; then
  _sluice "$@"
else
  compdef _sluice sluice
fi
)sh";
}

std::string FishCompletion() {
  std::string result =
      R"sh(# Completion of sluice in fish, written by `sluice completion fish`: keep it as sluice.fish in
# ~/.config/fish/completions.
function __sluice_words
    test (count (commandline -opc)) -eq $argv[1]
end
function __sluice_command
    set -l given (commandline -opc)
    string match -q -- "$argv *" "$given[2..-1] "
end
function __sluice_models
    set -l given (commandline -opc)
    $given[1] list 2>/dev/null | tail -n +2 | cut -d ' ' -f 1
end
complete -c sluice -f
)sh";
  for (std::string_view word : FirstWords()) {
    result += fmt::format("complete -c sluice -n '__sluice_words 1' -a {} -d {}\n", word,
                          QuotedForFish(SummaryOf(word)));
  }
  result += fmt::format("complete -c sluice -n '__sluice_command help' -a '{}'\n",
                        fmt::join(HelpTopics(), " "));
  for (const Command& command : Commands()) result += FishCommand(command);
  return result;
}

Result<int> RunCompletion(const options::Settings& settings) {
  const std::string shell = settings.positionals().empty() ? "" : settings.positionals()[0];
  if (shell != "bash" && shell != "zsh" && shell != "fish") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("expected the name of a shell, bash, zsh or fish, found '{}'", shell),
                "shell");
  }
  fmt::print("{}", shell == "bash"  ? BashCompletion()
                   : shell == "zsh" ? ZshCompletion()
                                    : FishCompletion());
  return 0;
}

}  // namespace sluice::cli
