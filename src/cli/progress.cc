#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/log_format.h"
#include "base/log_output.h"

namespace sluice::cli {
namespace {

constexpr size_t kBarColumns = 30;

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

int ErrorColumns() {
  constexpr int kUsualColumns = 80;
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

void StatusLine::Show(std::string_view text) {
  // Leaves the last column free, because some terminals wrap once it is written.
  const auto room = static_cast<size_t>(std::max(ErrorColumns() - 1, 1));
  std::string line(text.substr(0, room));
  const size_t width = line.size();
  line.resize(std::max(width, std::min(shown_, room)), ' ');
  shown_ = width;
  PrintError("\r" + line);
}

void StatusLine::End() {
  if (shown_ > 0) PrintError("\n");
  shown_ = 0;
}

namespace {

std::string Amount(int64_t number, ProgressUnit unit) {
  return unit == ProgressUnit::kBytes ? FormatBytes(number) : std::to_string(number);
}

std::string TimeLeft(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s left", seconds);
  if (seconds < 6000) return fmt::format("{:.0f} min left", seconds / 60);
  return fmt::format("{:.0f} h left", seconds / 3600);
}

double ShareOf(int64_t done, int64_t total) {
  return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

}  // namespace

std::string ProgressText(std::string_view what, int64_t done, int64_t total, double seconds,
                         ProgressUnit unit, int columns) {
  const double share = ShareOf(done, total);
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  const std::string_view name = unit == ProgressUnit::kBytes ? "" : " tokens";
  const std::string parts[] = {
      fmt::format("{:3.0f} %", share * 100),
      fmt::format("  {} of {}{}", Amount(done, unit), Amount(total, unit), name),
      fmt::format("  {}{}/s", Amount(static_cast<int64_t>(rate), unit), name),
      "  " + TimeLeft(left),
  };
  const auto room = static_cast<size_t>(std::max(columns - 1, 1));
  std::string text;
  for (const std::string& part : parts) {
    if (what.size() + 1 + text.size() + part.size() > room) break;
    text += part;
  }
  constexpr size_t kLeastBar = 8;
  const size_t used = what.size() + text.size() + 4;  // includes blanks and brackets
  std::string bar = " ";
  if (used + kLeastBar <= room) {
    const size_t size = std::min(room - used, kBarColumns);
    const auto full = static_cast<size_t>(share * static_cast<double>(size));
    bar = fmt::format(" [{}{}] ", std::string(full, '#'), std::string(size - full, '.'));
  }
  return std::string(what) + bar + text;
}

ProgressBar::ProgressBar(std::string what, ProgressUnit unit)
    : what_(std::move(what)),
      unit_(unit),
      terminal_(isatty(STDERR_FILENO) != 0 && CurrentLogFormat() == LogFormat::kText) {}

void ProgressBar::Update(int64_t done, int64_t total) {
  if (total <= 0) return;
  const double share = ShareOf(done, total);
  const double seconds = SecondsSince(start_);
  if (!terminal_) {
    const int tenth = static_cast<int>(share * 10);
    // Short loads log only their end.
    if (tenth == last_tenth_ || (seconds < 2 && tenth < 10)) return;
    last_tenth_ = tenth;
    LOG_INFO("load", "{}: {} of {}{} ({:.0f} %)", what_, Amount(done, unit_), Amount(total, unit_),
             unit_ == ProgressUnit::kTokens ? " tokens" : "", share * 100);
    return;
  }
  if (drawn_ && share < 1 && SecondsSince(last_) < 0.1) return;
  last_ = std::chrono::steady_clock::now();
  drawn_ = true;
  line_.Show(ProgressText(what_, done, total, seconds, unit_, ErrorColumns()));
}

void ProgressBar::Finish() {
  line_.End();
  drawn_ = false;
}

}  // namespace sluice::cli
