#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/log_format.h"
#include "base/log_output.h"

namespace sluice::cli {
namespace {

constexpr int kBarColumns = 30;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

void PrintError(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void PrintErrorOrDrop(std::string_view text) {
  WriteLogText(STDERR_FILENO, text, std::chrono::seconds(1));
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) != 0 && CurrentLogFormat() == LogFormat::kText) {}

void ProgressBar::Update(int64_t done_bytes, int64_t total_bytes) {
  if (total_bytes <= 0) return;
  const double share =
      std::clamp(static_cast<double>(done_bytes) / static_cast<double>(total_bytes), 0.0, 1.0);
  const double seconds = SecondsSince(start_);
  if (!terminal_) {
    const int tenth = static_cast<int>(share * 10);
    // Of short loads only the end is logged.
    if (tenth == last_tenth_ || (seconds < 2 && tenth < 10)) return;
    last_tenth_ = tenth;
    LOG_INFO("load", "{}: {} of {} ({:.0f} %)", what_, FormatBytes(done_bytes),
             FormatBytes(total_bytes), share * 100);
    return;
  }
  if (drawn_ && share < 1 && SecondsSince(last_) < 0.1) return;
  last_ = std::chrono::steady_clock::now();
  drawn_ = true;
  const int full = static_cast<int>(share * kBarColumns);
  const double rate = seconds > 0 ? static_cast<double>(done_bytes) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(total_bytes - done_bytes) / rate : 0;
  PrintError(fmt::format("\r{} [{}{}] {:3.0f} %  {} of {}  {}/s  {:.0f} s left ", what_,
                         std::string(static_cast<size_t>(full), '#'),
                         std::string(static_cast<size_t>(kBarColumns - full), '.'), share * 100,
                         FormatBytes(done_bytes), FormatBytes(total_bytes),
                         FormatBytes(static_cast<int64_t>(rate)), left));
}

void ProgressBar::Finish() {
  if (drawn_) PrintError("\n");
  drawn_ = false;
}

}  // namespace sluice::cli
