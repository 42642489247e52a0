#include "base/list_folder.h"

#include <dirent.h>

#include <cerrno>
#include <memory>
#include <string_view>

namespace sluice {

std::vector<std::filesystem::path> ListFolder(const std::filesystem::path& folder,
                                              std::error_code& error) {
  std::vector<std::filesystem::path> paths;
  error.clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(::opendir(folder.c_str()), ::closedir);
  if (listed == nullptr) {
    error.assign(errno, std::generic_category());
    return paths;
  }
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(listed.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") paths.push_back(folder / name);
  }
  if (errno != 0) error.assign(errno, std::generic_category());
  return paths;
}

}  // namespace sluice
