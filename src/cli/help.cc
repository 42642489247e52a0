#include "options/help.h"

#include <fmt/format.h>

#include "base/suggest.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/man_page.h"
#include "cli/metrics_help.h"
#include "cli/models_help.h"
#include "cli/parsers_help.h"
#include "constraints/schema_keywords.h"

namespace sluice::cli {

std::string LongHelp() {
  std::string text = "sluice serves large language models behind the OpenAI API.\n\nCommands:\n";
  for (const Command& command : Commands()) {
    text += fmt::format("  {:<48} {}\n", fmt::format("{} {}", command.name, command.arguments),
                        command.summary);
  }
  text += fmt::format("  {:<48} {}\n", "help [COMMAND] [WORD]",
                      "this page; the options of a command, or those that match WORD");
  text +=
      "\nUnder the name vllm or trtllm-serve it accepts the flags of these programs.\n"
      "`sluice help exit-codes` lists the exit codes.\n";
  return text;
}

std::string ShortHelp() {
  return "sluice serves large language models behind the OpenAI API.\n"
         "  sluice serve MODEL --port 8000                 serve a checkpoint\n"
         "  sluice chat --url http://127.0.0.1:8000        chat with the server\n"
         "  sluice doctor                                  report the capabilities of this "
         "machine\n"
         "  sluice help                                    list all commands\n"
         "  sluice help serve                              list the options of a command\n";
}

std::string CommandHelp(const Command& command, std::string_view filter) {
  const std::string options_text = options::OptionHelp(command.bit, filter);
  if (options_text.empty())
    return fmt::format("No option of sluice {} matches '{}'.\n", command.name, filter);
  return fmt::format("sluice {} {}: {}\n{}", command.name, command.arguments, command.summary,
                     options_text);
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
  std::vector<std::string> known = {"exit-codes"};
  for (const Command& command : Commands()) {
    const bool two = words.size() > 1 && command.name == words[0] + " " + words[1];
    if (!two && command.name != words[0]) {
      known.emplace_back(command.name);
      continue;
    }
    const size_t next = two ? 2 : 1;
    fmt::print("{}", CommandHelp(command, words.size() > next ? words[next] : ""));
    return 0;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("no help for '{}'{}", words[0], DidYouMean(words[0], known)));
}

}  // namespace sluice::cli
