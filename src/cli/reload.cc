#include "cli/reload.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "options/sources.h"

namespace sluice::cli {
namespace {

using options::Settings;

LogLevel LevelOf(const std::string& word) {
  if (word == "trace") return LogLevel::kTrace;
  if (word == "debug") return LogLevel::kDebug;
  if (word == "warning") return LogLevel::kWarning;
  if (word == "error" || word == "critical" || word == "internal_error") return LogLevel::kError;
  if (word == "verbose") return LogLevel::kDebug;
  return LogLevel::kInfo;
}

// Returns the options whose values differ in `now`, except --log-level.
std::set<std::string_view> ChangedOptions(const Settings& before, const Settings& now) {
  std::map<std::string_view, std::vector<std::string>> words;
  for (const options::Assignment* given : before.given()) words[given->option->name] = given->words;
  std::set<std::string_view> changed;
  for (const options::Assignment* given : now.given()) {
    const auto found = words.find(given->option->name);
    if (found == words.end() || found->second != given->words) changed.insert(given->option->name);
    if (found != words.end()) words.erase(found);
  }
  for (const auto& [name, gone] : words) changed.insert(name);
  changed.erase("log-level");
  return changed;
}

}  // namespace

void UseLogLevelOf(const Settings& settings) {
  SetLogLevel(LevelOf(settings.TextOr("log-level")));
}

void ReloadLogLevel(const Settings& settings) {
  const auto file = settings.Text("config");
  if (!file) return;
  const auto now = options::ReadFilesAgain(settings, options::kServe);
  if (!now) {
    LOG_ERROR("serve", "reloading the configuration failed; the log level is unchanged: {}",
              now.error().message);
    return;
  }
  const auto changed = ChangedOptions(settings, *now);
  if (!changed.empty()) {
    LOG_WARNING("serve", "--config {}: the new values of {} take effect at the next start", *file,
                fmt::join(changed, ", "));
  }
  UseLogLevelOf(*now);
  LOG_INFO("serve", "--config {}: the log level is {}", *file, now->TextOr("log-level"));
}

}  // namespace sluice::cli
