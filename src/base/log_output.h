// Writes what a process says about itself (log lines) so that a reader that stopped reading holds
// nothing up. Thread safety: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <string_view>

namespace sluice {

// Writes `text`, whole lines, to the open descriptor `file`, past stdio's buffer. What does not fit
// into a pipe, terminal or socket that nobody reads waits for `patience`; false if something was
// left out then. Only a line longer than PIPE_BUF, or one for a terminal, can be cut in its middle.
// Errors (a closed pipe, a full disk) count as written: nobody will read it. The mode of `file`,
// which other processes may share, is not changed.
bool WriteLogText(int file, std::string_view text, std::chrono::milliseconds patience);

}  // namespace sluice
