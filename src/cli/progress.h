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

// Thread safety: one thread at a time.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);

  void Update(int64_t done_bytes, int64_t total_bytes);
  // Ends the bar's line.
  void Finish();

 private:
  const std::string what_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};
  int last_tenth_ = 0;
  bool drawn_ = false;
};

}  // namespace sluice::cli
