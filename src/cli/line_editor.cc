#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <system_error>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice::cli {

struct LineEditor::State {
  LineEditorOptions options;
  std::string prompt, next_prompt;
  bool continued = false;  // whether the line continues the previous one
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string history_problem;
  std::string bytes;   // read but not yet passed to the editor
  bool marks = false;  // whether the terminal marks pasted text
  bool pasting = false;
  bool interrupted = false;
};

namespace {

constexpr int kHistoryLines = 1000;
// The terminal sends pasted text between these two sequences.
constexpr std::string_view kPasteBegins = "\x1b[200~";
constexpr std::string_view kPasteEnds = "\x1b[201~";
constexpr std::string_view kAskForMarks = "\x1b[?2004h";
constexpr std::string_view kNoMarks = "\x1b[?2004l";
// The editor's lines cannot contain line breaks and tabs. In pasted text these are shown as the
// characters U+2424 and U+2409 until the line is done.
constexpr std::string_view kShownBreak = "\xe2\x90\xa4";
constexpr std::string_view kShownTab = "\xe2\x90\x89";
// Maximum time between an escape byte and the rest of its sequence.
constexpr int kSequenceMilliseconds = 50;

void ReplaceAll(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

void Tell(std::string_view sequence) {
  fmt::print("{}", sequence);
  std::fflush(stdout);
}

// Waits for more bytes. Returns false at the end of input, or if the line is aborted.
bool ReadMore(LineEditor::State& state, int milliseconds = -1) {
  pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {state.options.interrupt_fd, POLLIN, 0}};
  while (true) {
    const int ready = poll(fds, 2, milliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    if (fds[1].revents != 0) {
      state.interrupted = true;
      return false;
    }
    char bytes[4096];
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    state.bytes.append(bytes, static_cast<size_t>(got));
    return true;
  }
}

// Removes `mark` from the front of the input. If only a part of it has arrived, waits for the rest.
bool TakeMark(LineEditor::State& state, std::string_view mark) {
  while (state.bytes.size() < mark.size() && mark.starts_with(state.bytes)) {
    if (!ReadMore(state, kSequenceMilliseconds)) return false;
  }
  if (!state.bytes.starts_with(mark)) return false;
  state.bytes.erase(0, mark.size());
  return true;
}

LineEditor::State& StateOf(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return *static_cast<LineEditor::State*>(data);
}

// libedit's callback for the next character. Returns 1, or 0 at the end.
int NextCharacter(EditLine* editor, wchar_t* result) {
  LineEditor::State& state = StateOf(editor);
  while (true) {
    if (state.bytes.empty() && !ReadMore(state)) return 0;
    if (state.bytes[0] == '\x1b') {
      const bool marked = TakeMark(state, state.pasting ? kPasteEnds : kPasteBegins);
      if (state.interrupted) return 0;
      if (marked) {
        state.pasting = !state.pasting;
        continue;
      }
    }
    std::mbstate_t conversion{};
    const size_t length = std::mbrtowc(result, state.bytes.data(), state.bytes.size(), &conversion);
    if (length == static_cast<size_t>(-2)) {  // the character is incomplete
      if (!ReadMore(state)) return 0;
      continue;
    }
    const bool broken = length == static_cast<size_t>(-1);
    const char first = state.bytes[0];
    state.bytes.erase(0, broken || length == 0 ? 1 : length);
    if (broken) continue;
    if (!state.pasting) return 1;
    if (first == '\r' || first == '\n') {
      *result = L'\u2424';
    } else if (first == '\t') {
      *result = L'\u2409';
    } else if (static_cast<unsigned char>(first) < 0x20 || first == 0x7f) {
      continue;  // the editor would interpret it as a command
    }
    return 1;
  }
}

char* PromptOf(EditLine* editor) {
  LineEditor::State& state = StateOf(editor);
  return (state.continued ? state.next_prompt : state.prompt).data();
}

unsigned char Complete(EditLine* editor, int character) {
  LineEditor::State& state = StateOf(editor);
  const LineInfo* info = el_line(editor);
  const std::string line(info->buffer, info->cursor);
  const std::vector<std::string> lines =
      state.options.complete ? state.options.complete(line) : std::vector<std::string>();
  if (lines.empty()) return _el_fn_complete(editor, character);
  // Completes the common prefix.
  std::string common = lines[0];
  for (const std::string& other : lines) {
    size_t same = 0;
    while (same < common.size() && same < other.size() && common[same] == other[same]) ++same;
    common.resize(same);
  }
  if (lines.size() == 1) common += ' ';
  if (common.size() > line.size()) {
    el_insertstr(editor, common.c_str() + line.size());
    return CC_REFRESH;
  }
  std::string list = "\n";
  for (const std::string& other : lines) list += other + "\n";
  Tell(list);
  return CC_REDISPLAY;
}

void LoadHistory(LineEditor::State& state) {
  HistEvent event;
  ::history(state.history, &event, H_SETSIZE, kHistoryLines);
  ::history(state.history, &event, H_SETUNIQUE, 1);
  const std::filesystem::path& file = state.options.history_file;
  if (!file.empty()) ::history(state.history, &event, H_LOAD, file.c_str());
}

// Writes to a temporary file first, because an interrupted write to the history file would lose it.
void SaveHistory(LineEditor::State& state) {
  const std::filesystem::path& file = state.options.history_file;
  if (file.empty() || !state.history_problem.empty()) return;
  std::error_code problem;
  std::filesystem::create_directories(file.parent_path(), problem);
  const std::string unfinished = fmt::format("{}.{}", file.string(), getpid());
  HistEvent event;
  errno = 0;
  if (::history(state.history, &event, H_SAVE, unfinished.c_str()) < 0 ||
      std::rename(unfinished.c_str(), file.c_str()) != 0) {
    state.history_problem = fmt::format("the history cannot be stored in {}: {}", file.string(),
                                        errno == 0 ? event.str : std::strerror(errno));
  }
}

}  // namespace

LineEditor::LineEditor(LineEditorOptions options) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.options = std::move(options);
  const char* terminal = std::getenv("TERM");
  state.marks = terminal != nullptr && std::string_view(terminal) != "dumb";
  // libedit expects \1 around escape sequences, which take no columns.
  const auto bold = [&](const std::string& text) {
    return state.options.colors ? "\1\x1b[1m\1" + text + "\1\x1b[0m\1" : text;
  };
  state.prompt = bold(state.options.prompt);
  state.next_prompt = bold(std::string(state.options.prompt.size(), '.')) + " ";
  if (state.options.prompt.ends_with(' '))
    state.next_prompt = bold(std::string(state.options.prompt.size() - 1, '.')) + " ";
  // The locale determines how multi-byte characters are decoded.
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
  state.editor = el_init("sluice", stdin, stdout, stderr);
  CHECK(state.editor != nullptr, "libedit does not start");
  state.history = history_init();
  CHECK(state.history != nullptr, "no memory for the history");
  el_set(state.editor, EL_CLIENTDATA, &state);
  el_set(state.editor, EL_PROMPT_ESC, PromptOf, '\1');
  el_set(state.editor, EL_EDITOR, "emacs");
  el_set(state.editor, EL_SIGNAL, 0);
  el_set(state.editor, EL_HIST, ::history, state.history);
  el_set(state.editor, EL_GETCFN, NextCharacter);
  el_set(state.editor, EL_ADDFN, "sluice-complete", "Complete", Complete);
  el_set(state.editor, EL_BIND, "^I", "sluice-complete", nullptr);
  el_set(state.editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(state.editor, EL_BIND, "\x1b[3~", "ed-delete-next-char", nullptr);
  LoadHistory(state);
}

LineEditor::~LineEditor() {
  history_end(state_->history);
  el_end(state_->editor);
}

const std::string& LineEditor::history_problem() const {
  return state_->history_problem;
}

LineEditor::Line LineEditor::Read() {
  State& state = *state_;
  state.interrupted = state.continued = state.pasting = false;
  std::string text;
  while (true) {
    el_resize(state.editor);
    if (state.marks) Tell(kAskForMarks);
    int length = 0;
    const char* line = el_gets(state.editor, &length);
    if (state.marks) Tell(kNoMarks);
    if (line == nullptr || length <= 0) {
      const bool given_up = state.interrupted || state.continued;
      state.bytes.clear();
      fmt::print("\n");
      el_reset(state.editor);
      return {given_up ? End::kInterrupted : End::kEndOfInput};
    }
    text.append(line, static_cast<size_t>(length));
    if (text.ends_with('\n')) text.pop_back();
    if (!text.ends_with('\\')) break;
    text.pop_back();
    text += kShownBreak;
    state.continued = true;
  }
  if (text.find_first_not_of(' ') != std::string::npos) {
    HistEvent event;
    ::history(state.history, &event, H_ENTER, text.c_str());
    SaveHistory(state);
  }
  ReplaceAll(text, kShownBreak, "\n");
  ReplaceAll(text, kShownTab, "\t");
  return {End::kLine, text};
}

std::filesystem::path HistoryFile(std::string_view name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  // The XDG specification requires that a relative path is ignored.
  if (state != nullptr && state[0] == '/') return std::filesystem::path(state) / "sluice" / name;
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] == '\0') return {};
  return std::filesystem::path(home) / ".local" / "state" / "sluice" / name;
}

}  // namespace sluice::cli
