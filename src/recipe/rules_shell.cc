// Checks a recipe's scripts for unintended effects of the shell.
#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "recipe/findings.h"

namespace sluice {
namespace {

// Maximum number of characters of a function's first line.
constexpr size_t kLongestHead = 200;

// Reports variables that only the written script sets. The shell expands an unquoted here-document
// when it writes it, and these variables are empty at that time.
void CheckHereDocument(const ShellHereDocument& document, const RecipeFacts& facts,
                       std::vector<Finding>& findings) {
  if (document.quoted) return;
  const ScriptRun inner = RunScripts({ReadShellScript(document.body, document.line)});
  std::vector<std::string> early;
  for (const std::string& name : ExpandedVariables(document.body)) {
    const bool set_outside = facts.run.assigned.contains(name) || ComesFromEnvironment(name);
    if (inner.assigned.contains(name) && !set_outside &&
        std::find(early.begin(), early.end(), name) == early.end())
      early.push_back(name);
  }
  if (!early.empty()) {
    findings.push_back(
        {Severity::kError, document.line - 1, "early-expansion",
         fmt::format(
             "the here-document is unquoted, so the shell expands {} while it writes the file, "
             "before the script that sets {} has run: the file holds empty values there. Write "
             "<<'{}' instead of <<{}",
             fmt::join(early, ", "), early.size() == 1 ? "it" : "them", document.delimiter,
             document.delimiter)});
  }
  if (document.body.find("\\\n") != std::string::npos) {
    findings.push_back(
        {Severity::kNote, document.line - 1, "joined-lines",
         fmt::format("in an unquoted here-document a backslash at the end of a line joins it with "
                     "the next one in the file; <<'{}' keeps the lines apart",
                     document.delimiter)});
  }
}

// Returns the line of a comment that shows how to set the variable: `# model="..."`.
int CommentThatSets(const std::string& name, const std::vector<ShellScript>& scripts) {
  for (const ShellScript& script : scripts) {
    for (size_t i = 0; i < script.comments.size(); ++i) {
      const size_t begin = script.comments[i].find_first_not_of(" \t");
      if (begin != std::string::npos &&
          script.comments[i].compare(begin, name.size() + 1, name + "=") == 0)
        return script.comment_lines[i];
    }
  }
  return 0;
}

// Returns for each line of the document whether it is in a function's body, which runs only when
// the function is called.
std::vector<bool> LinesOfFunctions(const RecipeDocument& document) {
  static const std::regex kBegin(R"(^(?:function\s+)?[A-Za-z_][A-Za-z0-9_-]*\s*\(\)\s*\{\s*$)");
  std::vector<bool> lines;
  for (const RecipeBlock& block : document.blocks) {
    if (block.kind != BlockKind::kShell) continue;
    std::istringstream text(block.text);
    std::string one;
    bool inside = false;
    for (int number = block.line; std::getline(text, one); ++number) {
      if (one.size() < kLongestHead && std::regex_match(one, kBegin)) inside = true;
      if (one.starts_with('}')) inside = false;
      if (!inside) continue;
      lines.resize(std::max(lines.size(), static_cast<size_t>(number) + 1));
      lines[static_cast<size_t>(number)] = true;
    }
  }
  return lines;
}

void CheckVariables(const RecipeFacts& facts, std::vector<Finding>& findings) {
  const std::vector<bool> in_function = LinesOfFunctions(facts.document);
  for (const UnsetVariable& unset : facts.run.unset) {
    const auto line = static_cast<size_t>(unset.line);
    if (facts.run.assigned.contains(unset.name) && line < in_function.size() && in_function[line])
      continue;
    std::string text = fmt::format("${} is used, and nothing sets it", unset.name);
    if (const int comment = CommentThatSets(unset.name, facts.scripts); comment > 0) {
      text += fmt::format(" (line {} only shows how, in a comment)", comment);
    } else if (const auto later = facts.run.assigned.find(unset.name);
               later != facts.run.assigned.end()) {
      text += fmt::format(" before line {}", later->second);
    }
    findings.push_back({Severity::kError, unset.line, "unset-variable",
                        text + ": its place stays empty. Set it first"});
  }
}

void CheckCommand(const ShellCommand& command, std::vector<Finding>& findings) {
  for (const ShellRedirect& redirect : command.redirects) {
    // The shell would read <path/to/models> as a redirection from one file and to another.
    if (redirect.symbol != "<" || redirect.target.size() != 1) continue;
    findings.push_back(
        {Severity::kNote, command.line, "placeholder",
         fmt::format("<{}> is a placeholder; the shell would read it as the name of an input file",
                     redirect.target[0].text)});
  }
  if (command.words.size() < 2 || command.words[0].empty()) return;
  const std::string& program = command.words[0][0].text;
  if (program != "pip" && program != "pip3") return;
  for (const ShellWord& word : command.words) {
    if (word.size() == 1 && !word[0].quoted && word[0].text.find('[') != std::string::npos) {
      findings.push_back(
          {Severity::kNote, command.line, "unquoted-brackets",
           fmt::format("{} without quotes is a pattern of file names: bash passes it on where "
                       "nothing matches, zsh stops. Put it in quotes",
                       word[0].text)});
    }
  }
}

}  // namespace

void CheckShell(const RecipeFacts& facts, std::vector<Finding>& findings) {
  for (const ShellScript& script : facts.scripts) {
    for (const ShellCommand& command : script.commands) {
      CheckCommand(command, findings);
      for (const ShellHereDocument& document : command.here_documents)
        CheckHereDocument(document, facts, findings);
    }
    if (script.trailing_backslash_line > 0) {
      findings.push_back({Severity::kNote, script.trailing_backslash_line, "trailing-backslash",
                          "the last line ends with a backslash: if more text is pasted after it, "
                          "that text becomes part of this command"});
    }
  }
  CheckVariables(facts, findings);
}

}  // namespace sluice
