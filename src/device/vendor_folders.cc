#include "device/vendor_folders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

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

// Adds the package folders of the python3 that a shell would start.
void AddPythonFolders(Packages packages, std::vector<std::string>& folders) {
  const char* value = std::getenv("PATH");
  std::string_view path = value == nullptr ? "" : value;
  while (!path.empty()) {
    const size_t end = std::min(path.find(':'), path.size());
    const fs::path folder(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    std::error_code error;
    if (folder.empty() || !fs::exists(folder / "python3", error)) continue;
    AddPackageFolders(folder.parent_path(), packages, folders);
    // A system's Python keeps packages installed by users in /usr/local.
    if (folder == "/usr/bin") AddPackageFolders("/usr/local", packages, folders);
    return;
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

}  // namespace sluice
