// Writes log lines without blocking the process when their reader has stopped. Thread safety: all
// functions may be called from any thread.
#pragma once

#include <chrono>
#include <string_view>

namespace sluice {

// Writes `text`, which consists of whole lines, to the descriptor `file`, bypassing stdio's buffer.
// If a pipe, terminal or socket is full, waits up to `patience` for room, and returns false if some
// text was dropped after that. Only a line longer than PIPE_BUF, or a line for a terminal, can be
// cut in its middle. On errors (a closed pipe, a full disk) returns true, because a retry is
// pointless. Does not change the mode of `file`, which other processes may share.
bool WriteLogText(int file, std::string_view text, std::chrono::milliseconds patience);

}  // namespace sluice
