// Writes what a process says about itself (log lines) so that a reader that stopped reading holds
// nothing up. Thread safety: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <string_view>

namespace sluice {

// Writes `text`, whole lines, to the open descriptor `file`, behind the back of stdio. What does
// not fit into a pipe that nobody empties waits for `patience`; false if something was left out
// then. Errors (a closed pipe, a full disk) count as written: nobody will read it.
bool WriteLogText(int file, std::string_view text, std::chrono::milliseconds patience);

}  // namespace sluice
