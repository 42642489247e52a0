// The commands that a script would run, with variables expanded, for each path through its `if`s.
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

// A command with expanded words. The output of a command is unknown and written as "$(...)".
struct RanCommand {
  int line = 0;
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;  // exported so far, or set before the command
  std::string output_file;                         // target of > or >>; "" if there is none
  std::vector<ShellHereDocument> here_documents;
  std::vector<std::string> unset;  // variables in its words
  bool background = false;
};

struct ScriptWay {
  // Conditions that hold on this path, as written; negated ones as "not: ...".
  std::vector<std::string> conditions;
  std::vector<RanCommand> commands;
};

// Whether the name is in capitals, as for variables from the user's environment.
bool ComesFromEnvironment(const std::string& name);

// All paths through the scripts, which run consecutively in one shell; at most 16 paths.
struct ScriptRun {
  std::vector<ScriptWay> ways;
  std::vector<UnsetVariable> unset;     // each name and line once, without environment variables
  std::map<std::string, int> assigned;  // name to the line of its first assignment
};
ScriptRun RunScripts(const std::vector<ShellScript>& scripts);

// The variables that occur in a text: $NAME, ${NAME}, and names in $((...)).
std::vector<std::string> ExpandedVariables(const std::string& text);

}  // namespace sluice
