// Reads lines from a terminal, with editing, history and completion, using libedit.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

struct LineEditorOptions {
  std::string prompt;
  bool colors = true;
  std::filesystem::path history_file = {};  // empty: no history is kept
  // Returns possible completions, as whole lines. If it returns none, file names are completed.
  std::function<std::vector<std::string>(std::string_view line)> complete = {};
  int interrupt_fd = -1;  // becomes readable when the line must be aborted
};

// REQUIRES: standard input and output are a terminal; there is only one instance. Thread safety:
// one thread.
class LineEditor {
 public:
  enum class End { kLine, kInterrupted, kEndOfInput };
  struct Line {
    End end = End::kEndOfInput;
    // Without the final line break. Contains the line breaks of pasted text and of lines that a
    // final backslash continued.
    std::string text = {};
  };

  explicit LineEditor(LineEditorOptions options);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Line Read();
  // The reason why the history cannot be kept; "" if it can.
  const std::string& history_problem() const;

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

// Returns the path of a history file: sluice/NAME in XDG_STATE_HOME, else in ~/.local/state; empty
// without a home folder.
std::filesystem::path HistoryFile(std::string_view name);

}  // namespace sluice::cli
