#include "cli/near_folder.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "base/suggest.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// Folders with more entries are skipped: they are unlikely to contain models and take long to read.
constexpr size_t kMostEntries = 10000;

std::vector<std::string> FoldersIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  size_t entries = 0;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end;
       !error && entry != end && entries < kMostEntries; entry.increment(error), ++entries) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) names.push_back(entry->path().filename().string());
  }
  return names;
}

}  // namespace

std::string NearModelFolder(const std::string& path) {
  std::error_code error;
  fs::path found;
  for (const fs::path& part : fs::path(path)) {
    if (part.empty()) continue;  // empty after a trailing slash
    if (part == "/" || part == "." || part == ".." || fs::is_directory(found / part, error)) {
      found /= part;
      continue;
    }
    const std::vector<std::string> near = Nearest(part.string(), FoldersIn(found));
    if (near.empty()) return "";
    found /= near[0];
  }
  if (!fs::exists(found / "config.json", error) && !fs::exists(found / "params.json", error))
    return "";
  return found.string();
}

}  // namespace sluice::cli
