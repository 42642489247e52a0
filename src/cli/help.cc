#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/suggest.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/man_page.h"
#include "cli/metrics_help.h"
#include "cli/models_help.h"
#include "cli/parsers_help.h"
#include "constraints/schema_keywords.h"
#include "options/help.h"

namespace sluice::cli {
namespace {

constexpr size_t kNameColumns = 18;

std::string HelpLine(const Command& command) {
  return fmt::format("  {:<{}}{}\n", command.name, kNameColumns, command.summary);
}

// The sections of the help page: the first command of each, and its title.
constexpr std::pair<std::string_view, std::string_view> kParts[] = {
    {"serve", "Serve and talk"}, {"pull", "Models on this machine"},
    {"bench serve", "Measure"},  {"quantize", "Work with models and files"},
    {"tokenize", "Tools"},
};

}  // namespace

std::string LongHelp() {
  std::string text = "sluice serves large language models with the OpenAI API.\n";
  for (const Command& command : Commands()) {
    for (const auto& [first, title] : kParts) {
      if (command.name == first) text += fmt::format("\n{}:\n", title);
    }
    text += HelpLine(command);
  }
  text +=
      "\n"
      "  help COMMAND      a command's arguments; `help serve WORD`: options by word\n"
      "  help exit-codes   the meaning of the exit codes\n"
      "\n"
      "`sluice MODEL` is `sluice run MODEL`. A model is a folder or an id (org/name).\n"
      "Under the names vllm and trtllm-serve, it accepts the flags of these programs.\n";
  return text;
}

std::string ShortHelp() {
  return "sluice serves large language models with the OpenAI API.\n"
         "  sluice run MODEL       serve a model and chat with it; MODEL is a folder\n"
         "                         or a model id such as Qwen/Qwen2.5-0.5B-Instruct\n"
         "  sluice serve MODEL     serve it, at http://127.0.0.1:8000\n"
         "  sluice chat            chat with that server\n"
         "  sluice doctor          features and speed of this machine\n"
         "  sluice help            all commands\n"
         "  sluice help serve      the options of a command\n";
}

std::string FamilyHelp(std::string_view word) {
  std::string text;
  for (const Command& command : Commands()) {
    if (!command.name.starts_with(word) || command.name.substr(word.size(), 1) != " ") continue;
    text += HelpLine(command);
  }
  if (text.empty()) return text;
  return fmt::format(
      "sluice {} has several commands:\n{}`sluice help {} NAME` lists the options.\n", word, text,
      word);
}

std::string CommandHelp(const Command& command, std::string_view filter) {
  const std::string head =
      fmt::format("sluice {} {}\n{}\n", command.name, command.arguments, command.summary);
  if (filter.empty()) {
    if (const std::string common = options::CommonOptionHelp(command.bit); !common.empty()) {
      return fmt::format("{}{}\nMore: `sluice {} --help all`, `sluice help {} WORD`\n", head,
                         common, command.name, command.name);
    }
  }
  const std::string options_text = options::OptionHelp(command.bit, filter);
  if (options_text.empty())
    return fmt::format("No option of sluice {} matches '{}'.\n", command.name, filter);
  return head + options_text;
}

Result<int> RunHelp(const std::vector<std::string>& words) {
  if (words.empty()) {
    fmt::print("{}", LongHelp());
    return 0;
  }
  if (words[0] == "exit-codes") {
    fmt::print("{}", ExitCodeHelp());
    return 0;
  }
  if (words[0] == "--man") {
    fmt::print("{}", ManPage());
    return 0;
  }
  if (words[0] == "--metrics") {
    fmt::print("{}", MetricsMarkdown());
    return 0;
  }
  if (words[0] == "--models") {
    fmt::print("{}", ModelsMarkdown());
    return 0;
  }
  if (words[0] == "--parsers") {
    fmt::print("{}", ParsersMarkdown());
    return 0;
  }
  if (words[0] == "--json-schema") {
    fmt::print("{}", SchemaKeywordsMarkdown());
    return 0;
  }
  if (words[0] == "--markdown") {
    fmt::print("{}", options::OptionsMarkdown());
    return 0;
  }
  std::vector<std::string> known = SuggestedCommands();
  for (const char* other : {"exit-codes", "bench", "recipe"}) known.emplace_back(other);
  const std::string_view synonym = SynonymOf(words[0]);
  const std::string first(synonym.empty() ? words[0] : synonym);
  for (const Command& command : Commands()) {
    const bool two = words.size() > 1 && command.name == first + " " + words[1];
    if (!two && command.name != first) continue;
    const size_t next = two ? 2 : 1;
    fmt::print("{}", CommandHelp(command, words.size() > next ? words[next] : ""));
    return 0;
  }
  if (const std::string family = FamilyHelp(first); !family.empty()) {
    fmt::print("{}", family);
    return 0;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("no help for '{}'{}", words[0], DidYouMean(words[0], known)));
}

}  // namespace sluice::cli
