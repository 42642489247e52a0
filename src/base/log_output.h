// Writes log lines so that a reader that stopped reading does not block the process.
// Thread safety: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <string_view>

namespace sluice {

// Writes `text`, whole lines, to the open descriptor `file`, bypassing stdio's buffer. If a pipe,
// terminal or socket is full, waits up to `patience` for room; returns false if some of the text
// was dropped then. Only a line longer than PIPE_BUF, or a line for a terminal, can be cut in its
// middle. On errors (a closed pipe, a full disk) returns true: nobody will read the text. The mode
// of `file`, which other processes may share, is not changed.
bool WriteLogText(int file, std::string_view text, std::chrono::milliseconds patience);

}  // namespace sluice
