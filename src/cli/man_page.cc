#include "cli/man_page.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/offered_options.h"
#include "cli/version.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

// Escapes roff's special characters, and writes dashes so that they are copied as ASCII dashes.
std::string Roff(std::string_view text) {
  std::string result;
  if (text.starts_with('.') || text.starts_with('\'')) result += "\\&";
  for (char c : text) {
    switch (c) {
      case '\\': result += "\\e"; break;
      case '-': result += "\\-"; break;
      case '~': result += "\\(ti"; break;
      case '^': result += "\\(ha"; break;
      case '`': result += "\\(ga"; break;
      case '\'': result += "\\(aq"; break;
      default: result += c;
    }
  }
  return result;
}

std::string CommandsWith(const options::Option& option) {
  if (option.commands == options::kAllCommands) return "all commands";
  std::vector<std::string_view> names;
  for (const Command& command : Commands()) {
    if ((option.commands & command.bit) != 0) names.push_back(command.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string OptionEntry(const OfferedOption& item) {
  const options::Option& option = *item.option;
  std::vector<std::string> flags;
  for (const std::string& flag : item.flags) flags.push_back(fmt::format("\\fB{}\\fR", Roff(flag)));
  std::string value;
  if (item.TakesValue()) value = fmt::format(" \\fI{}\\fR", options::TypeName(option.type));
  if (option.type == options::Type::kChoice) {
    std::vector<std::string> words;
    for (const auto& word : item.values) words.push_back(Roff(word));
    value = fmt::format(" \\fI{}\\fR", fmt::join(words, "|\\:"));  // allows a line break after each
                                                                   // word
  }
  std::string text =
      fmt::format(".TP\n{}{}\n{}\n", fmt::join(flags, ", "), value, Roff(option.help));
  if (item.TakesValue() && !option.default_value.empty())
    text += fmt::format("Default: {}.\n", Roff(option.default_value));
  return text + fmt::format(".br\nOf {}; \\fB{}\\fR.\n", Roff(CommandsWith(option)),
                            options::VariableOf(option));
}

}  // namespace

std::string ManPage() {
  std::string page = fmt::format(
      ".\\\" Written by `sluice help --man` from the table of options.\n"
      ".TH SLUICE 1 \"\" \"sluice {}\" \"User Commands\"\n"
      ".SH NAME\nsluice \\- serve large language models with the OpenAI API\n"
      ".SH SYNOPSIS\n",
      Version());
  std::string commands;
  for (const Command& command : Commands()) {
    page += fmt::format(".B sluice {}\n{}\n.br\n", Roff(command.name), Roff(command.arguments));
    commands += fmt::format(".TP\n.B {}\n{}.\n", Roff(command.name), Roff(command.summary));
  }
  page += ".B sluice help\n[COMMAND] [WORD]\n";
  page +=
      ".SH DESCRIPTION\nA checkpoint in Hugging Face's format is loaded from a folder, or "
      "downloaded by its id. It can be served,\nchatted with, measured or converted.\nUnder the "
      "names vllm and trtllm\\-serve, the program accepts the command lines of these "
      "programs.\nEvery option can be given as a flag, as a key of the YAML file of "
      "\\fB\\-\\-config\\fR, or as an environment variable;\nflags override the environment, the "
      "environment overrides the file.\nOptions of other programs that are accepted without an "
      "effect are listed by\n.B sluice explain\\-options\nalone.\n";
  page += ".SH COMMANDS\n" + commands + ".SH OPTIONS\n";
  std::string_view group;
  for (const OfferedOption& item : OfferedOptions(options::kAllCommands)) {
    if (item.option->group != group) {
      group = item.option->group;
      page += fmt::format(".SS {}\n", Roff(group));
    }
    page += OptionEntry(item);
  }
  page += ".SH EXIT STATUS\n.nf\n" + Roff(ExitCodeHelp()) + ".fi\n";
  return page +
         ".SH FILES\n.TP\n.I \\(ti/.cache/huggingface/hub\nModels that were downloaded "
         "(\\fBHF_HUB_CACHE\\fR, \\fBHF_HOME\\fR).\n.TP\n.I /etc/sluice/sluice.yaml\nOptions of "
         "the systemd service.\n.SH EXAMPLES\n.nf\nsluice serve org/model \\-\\-port 8000\nsluice "
         "chat \\-\\-url http://127.0.0.1:8000\nsluice help serve\n.fi\n";
}

}  // namespace sluice::cli
