// Progress of loading: a bar on a terminal, a log line for each tenth elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::cli {

std::string FormatBytes(int64_t bytes);  // "1.23 GiB"

// Writes to standard error; errors are ignored.
void PrintError(std::string_view text);
// Likewise, but output that is not read within a second is dropped: for servers, which must not
// block on the reader of their output.
void PrintErrorOrDrop(std::string_view text);

// The columns of the terminal of standard error now; 80 where it does not tell.
int ErrorColumns();

// One line of a terminal, written again and again over itself. It is never as wide as the window,
// so that it does not wrap, and what a longer one has left is blanked. Thread safety: one thread at
// a time.
class StatusLine {
 public:
  // `text`: of printable ASCII; what does not fit is cut.
  void Show(std::string_view text);
  // Goes to the next line, if anything was shown.
  void End();

 private:
  size_t shown_ = 0;  // columns that are not blank
};

enum class ProgressUnit { kBytes, kTokens };

// "loading [####......]  45 %  1.20 GiB of 2.67 GiB  300.00 MiB/s  5 s left", in less than
// `columns`: what does not fit is left out, from the bar on.
std::string ProgressText(std::string_view what, int64_t done, int64_t total, double seconds,
                         ProgressUnit unit, int columns);

// Thread safety: one thread at a time.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what, ProgressUnit unit = ProgressUnit::kBytes);

  void Update(int64_t done, int64_t total);
  // Ends the bar's line.
  void Finish();

 private:
  const std::string what_;
  const ProgressUnit unit_;
  const bool terminal_;
  StatusLine line_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};
  int last_tenth_ = 0;
  bool drawn_ = false;
};

}  // namespace sluice::cli
