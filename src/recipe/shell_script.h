// Parses the subset of the shell language that recipes use. Runs nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// A piece of a word.
struct ShellPart {
  enum class Kind { kText, kVariable, kCommand, kArithmetic } kind = Kind::kText;
  std::string text;     // the text, the variable's name, or the content of the brackets
  bool quoted = false;  // whether its value stays one word
  // ${NAME:-TEXT} and ${NAME:=TEXT}: TEXT, which is used if the variable is unset.
  std::optional<std::string> otherwise = {};
};

using ShellWord = std::vector<ShellPart>;

struct ShellHereDocument {
  std::string delimiter;
  bool quoted = false;  // whether the body is literal; if not, the shell expands it
  std::string body;
  int line = 0;  // line number of the body's first line
};

struct ShellRedirect {
  std::string symbol;  // "<", ">", ">>"
  ShellWord target;
};

// The branch of an `if` that contains a command.
struct ShellBranch {
  int if_id = 0;   // unique in a script
  int branch = 0;  // 0 for `then`, 1 for the next branch, and so on
  friend bool operator==(const ShellBranch&, const ShellBranch&) = default;
};

struct ShellAssignment {
  std::string name;
  ShellWord value;
};

// A simple command: assignments, words, redirections. A loop's head is a command with the words
// `for NAME VALUES...`.
struct ShellCommand {
  int line = 0;
  std::vector<ShellAssignment> assignments;
  std::vector<ShellWord> words;
  std::vector<ShellRedirect> redirects;
  std::vector<ShellHereDocument> here_documents;
  std::vector<ShellBranch> branches;  // outermost branch first
  bool background = false;
};

struct ShellIf {
  std::vector<std::string> conditions;  // condition of each branch, as written; "" for `else`
  bool has_else = false;
};

struct ShellScript {
  std::vector<ShellCommand> commands;
  std::vector<ShellIf> ifs;           // by id
  std::vector<std::string> comments;  // whole-line comments, without "#"
  std::vector<int> comment_lines;     // their line numbers
  // Line number of the last line of code if it ends with a backslash.
  int trailing_backslash_line = 0;
};

// Parses a script. Its first line has the number `first_line`. Unsupported constructs (case,
// functions) are parsed as commands.
ShellScript ReadShellScript(std::string_view text, int first_line);

}  // namespace sluice
