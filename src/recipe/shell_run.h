// Finds the commands that a script would run, with variables expanded, on each path through its
// `if`s.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "recipe/shell_script.h"

namespace sluice {

// A variable that was used before it was set.
struct UnsetVariable {
  std::string name;
  int line = 0;
};

// A command with expanded words. The output of another command is unknown; it appears as "$(...)".
struct RanCommand {
  int line = 0;
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;  // exported so far, or set before the command
  // File that the output is redirected to (> or >>); "" if there is none.
  std::string output_file;
  std::vector<ShellHereDocument> here_documents;
  std::vector<std::string> unset;  // unset variables that its words use
  bool background = false;
};

struct ScriptWay {
  // Conditions that are true on this path, as written. A negated condition is "not: ...".
  std::vector<std::string> conditions;
  std::vector<RanCommand> commands;
};

// Returns whether the name is in capitals, which is usual for variables from the user's
// environment.
bool ComesFromEnvironment(const std::string& name);

// The result for scripts that run consecutively in one shell: all paths, at most 16.
struct ScriptRun {
  std::vector<ScriptWay> ways;
  // Each pair of name and line once; without environment variables.
  std::vector<UnsetVariable> unset;
  std::map<std::string, int> assigned;  // name to the line of its first assignment
};
ScriptRun RunScripts(const std::vector<ShellScript>& scripts);

// Returns the variables that a text uses: $NAME, ${NAME}, and names in $((...)).
std::vector<std::string> ExpandedVariables(const std::string& text);

}  // namespace sluice
