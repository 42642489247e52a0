#include "device/vendor_folders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Packages = std::span<const char* const>;

// Appends the package folders of the Python that is installed at `prefix`.
void AddPackageFolders(const fs::path& prefix, Packages packages,
                       std::vector<std::string>& folders) {
  std::error_code error;
  for (fs::directory_iterator python(prefix / "lib", error);
       !error && python != fs::directory_iterator(); python.increment(error)) {
    if (!python->path().filename().string().starts_with("python3")) continue;
    for (const char* installed : {"site-packages", "dist-packages"}) {
      for (const char* package : packages) {
        const fs::path folder = python->path() / installed / "nvidia" / package / "lib";
        std::error_code ignored;
        if (fs::is_directory(folder, ignored)) folders.push_back(folder.string() + "/");
      }
    }
  }
}

// Returns the prefixes whose packages `python3` in `folder` may see. It is often a link into a
// virtual environment, where python3 is a link to the base Python, so the prefix of each link
// counts.
std::vector<fs::path> PrefixesOf(const fs::path& folder) {
  constexpr int kMostLinks = 8;
  std::vector<fs::path> prefixes;
  fs::path program = folder / "python3";
  for (int i = 0; i < kMostLinks; ++i) {
    prefixes.push_back(program.parent_path().parent_path());
    std::error_code error;
    const fs::path target = fs::read_symlink(program, error);
    if (error) break;
    program = (program.parent_path() / target).lexically_normal();
  }
  // The folder itself may also be a link.
  std::error_code error;
  const fs::path real = fs::canonical(folder / "python3", error);
  if (!error) prefixes.push_back(real.parent_path().parent_path());
  return prefixes;
}

// Adds the package folders of each python3 in PATH, in PATH's order, and the folders of the user's
// own packages.
void AddPythonFolders(Packages packages, std::vector<std::string>& folders) {
  std::vector<fs::path> prefixes;
  const char* value = std::getenv("PATH");
  std::string_view path = value == nullptr ? "" : value;
  while (!path.empty()) {
    const size_t end = std::min(path.find(':'), path.size());
    const fs::path folder(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    std::error_code error;
    if (folder.empty() || !fs::exists(folder / "python3", error)) continue;
    for (fs::path& prefix : PrefixesOf(folder)) prefixes.push_back(std::move(prefix));
    // A system's Python keeps packages installed by users in /usr/local.
    if (folder == "/usr/bin") prefixes.emplace_back("/usr/local");
  }
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != 0) prefixes.push_back(fs::path(home) / ".local");
  for (auto prefix = prefixes.begin(); prefix != prefixes.end(); ++prefix) {
    if (std::find(prefixes.begin(), prefix, *prefix) == prefix)
      AddPackageFolders(*prefix, packages, folders);
  }
}

}  // namespace

std::vector<std::string> VendorFolders(std::span<const char* const> python_packages) {
  std::vector<std::string> folders = {""};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != 0) folders.push_back(std::string(value) + "/lib64/");
  }
  folders.emplace_back("/usr/local/cuda/lib64/");
  AddPythonFolders(python_packages, folders);
  return folders;
}

std::vector<std::string> RocmFolders() {
  std::vector<std::string> folders = {""};
  const char* rocm = std::getenv("ROCM_PATH");
  if (rocm != nullptr && *rocm != 0) folders.push_back(std::string(rocm) + "/lib/");
  folders.emplace_back("/opt/rocm/lib/");
  return folders;
}

}  // namespace sluice
