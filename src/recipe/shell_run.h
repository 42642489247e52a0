// What a script would run: its variables put in, once for each way through its `if`s.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "recipe/shell_script.h"

namespace sluice {

// A variable that was used before anything gave it a value.
struct UnsetVariable {
  std::string name;
  int line = 0;
};

// A command with its words as the program gets them. What only the machine can tell (the output of
// a command) stands as "$(...)".
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
  std::vector<std::string>
      conditions;  // what holds on it, as written; "not: ..." where it does not
  std::vector<RanCommand> commands;
};

// A variable that comes from the user's own environment: written in capitals.
bool ComesFromEnvironment(const std::string& name);

// All ways through the scripts, run one after the other in one shell; at most 16.
struct ScriptRun {
  std::vector<ScriptWay> ways;
  std::vector<UnsetVariable> unset;     // each name and line once, environment aside
  std::map<std::string, int> assigned;  // name to the line of its first assignment
};
ScriptRun RunScripts(const std::vector<ShellScript>& scripts);

// The variables that a text would have expanded in it: $NAME, ${NAME}, and the names in $((...)).
std::vector<std::string> ExpandedVariables(const std::string& text);

}  // namespace sluice
