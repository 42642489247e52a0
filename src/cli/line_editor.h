// Reads what is typed at a terminal, with editing, history and completion, by libedit.
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
  std::filesystem::path history_file = {};  // empty: the history is not kept
  // What the line may go on with, as whole lines; empty where file names are to be completed.
  std::function<std::vector<std::string>(std::string_view line)> complete = {};
  int interrupt_fd = -1;  // becomes readable when the line is to be given up
};

// REQUIRES: standard input and output are a terminal; one at a time. Thread safety: one thread.
class LineEditor {
 public:
  enum class End { kLine, kInterrupted, kEndOfInput };
  struct Line {
    End end = End::kEndOfInput;
    // Without the line break at its end. Those of a paste are in it; a backslash at the end of a
    // line goes on in the next one.
    std::string text = {};
  };

  explicit LineEditor(LineEditorOptions options);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Line Read();
  // Why the history cannot be kept; "" where it can.
  const std::string& history_problem() const;

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

// Where histories are kept: sluice/NAME of XDG_STATE_HOME, else of ~/.local/state; empty without a
// home.
std::filesystem::path HistoryFile(std::string_view name);

}  // namespace sluice::cli
