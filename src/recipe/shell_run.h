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

// A command with expanded words. Output of commands, which is unknown, is written as "$(...)".
struct RanCommand {
  int line = 0;
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;  // exported so far, and in front of the command
  std::string output_file;                         // of > or >>; "" for none
  std::vector<ShellHereDocument> here_documents;
  std::vector<std::string> unset;  // variables in its words
  bool background = false;
};

struct ScriptWay {
  std::vector<std::string> conditions;  // that hold on it, as written; negated ones as "not: ..."
  std::vector<RanCommand> commands;
};

// True for names in capitals, which come from the user's environment.
bool ComesFromEnvironment(const std::string& name);

// All paths through the scripts, run one after the other in one shell; at most 16.
struct ScriptRun {
  std::vector<ScriptWay> ways;
  std::vector<UnsetVariable> unset;     // each name and line once, environment aside
  std::map<std::string, int> assigned;  // name to the line of its first assignment
};
ScriptRun RunScripts(const std::vector<ShellScript>& scripts);

// The variables that expansion of a text would replace: $NAME, ${NAME}, and the names in $((...)).
std::vector<std::string> ExpandedVariables(const std::string& text);

}  // namespace sluice
