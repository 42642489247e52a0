// Shows the progress of loading: a bar on a terminal, otherwise a log line for each tenth.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::cli {

std::string FormatBytes(int64_t bytes);  // for example "1.23 GiB"

// Writes to standard error. Ignores errors.
void PrintError(std::string_view text);
// Like PrintError, but drops output that is not read within a second, because a server must not
// block on the reader of its output.
void PrintErrorOrDrop(std::string_view text);

// The current width of standard error's terminal in columns; 80 if unknown.
int ErrorColumns();

// A line of a terminal that is repeatedly overwritten. It is always narrower than the window, so
// that it does not wrap; the rest of a longer previous text is blanked. Thread safety: one thread
// at a time.
class StatusLine {
 public:
  // `text`: printable ASCII. It is truncated if it does not fit.
  void Show(std::string_view text);
  // Moves to the next line, if anything was shown.
  void End();

 private:
  size_t shown_ = 0;  // number of columns that are not blank
};

enum class ProgressUnit { kBytes, kTokens };

// Returns "loading [####......] 45 % 1.20 GiB of 2.67 GiB 300.00 MiB/s 5 s left", shorter than
// `columns`. Parts that do not fit are left out, beginning with the bar.
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
