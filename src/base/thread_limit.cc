#include "base/thread_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {
namespace {

// Reads the number in a file; nullopt if it contains "max" or does not exist.
std::optional<uint64_t> NumberIn(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string text;
  std::getline(stream, text);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

// The lowest pids.max of this process's control group and its ancestors, for both versions of
// control groups.
std::optional<uint64_t> ControlGroupLimit(const std::filesystem::path& root) {
  std::optional<uint64_t> lowest;
  std::ifstream groups(root / "proc/self/cgroup");
  // Lines are "0::/user.slice/x" (version 2) or "7:pids:/x" (version 1).
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "pids") continue;
    const std::filesystem::path top =
        root / "sys/fs/cgroup" / (controllers.empty() ? "" : controllers);
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    while (true) {
      if (const auto found = NumberIn(top / group / "pids.max"))
        lowest = std::min(*found, lowest.value_or(UINT64_MAX));
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return lowest;
}

}  // namespace

std::string ThreadLimits(const std::filesystem::path& root) {
  std::vector<std::pair<uint64_t, std::string>> limits;
  rlimit processes{};
  if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur != RLIM_INFINITY)
    limits.emplace_back(processes.rlim_cur, "ulimit -u of this user");
  if (const auto pids = ControlGroupLimit(root))
    limits.emplace_back(*pids, "pids.max of the control group");
  if (const auto threads = NumberIn(root / "proc/sys/kernel/threads-max"))
    limits.emplace_back(*threads, "kernel.threads-max");
  std::sort(limits.begin(), limits.end());
  std::vector<std::string> texts;
  for (const auto& [value, name] : limits) texts.push_back(fmt::format("{} {}", name, value));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string ThreadsRefused(const std::string& what, const std::string& reason,
                           const std::string& advice) {
  const std::string limits = ThreadLimits();
  // The system reports the same error if the address space has no room for the thread's stack.
  if (rlimit space{}; getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    return fmt::format(
        "the system refuses {} ({}): each thread needs memory for its stack, and the memory of "
        "this process is limited to {} MiB (ulimit -v); raise that limit, or those of threads "
        "({}){}{}",
        what, reason, space.rlim_cur >> 20, limits, advice.empty() ? "" : ", or ", advice);
  }
  return fmt::format("the system refuses {} ({}): {}raise the lowest limit of threads{}{}", what,
                     reason,
                     limits.empty() ? "" : fmt::format("the limits of threads are {}; ", limits),
                     advice.empty() ? "" : ", or ", advice);
}

}  // namespace sluice
