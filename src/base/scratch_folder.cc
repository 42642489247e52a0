#include "base/scratch_folder.h"

#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <stdlib.h>

namespace sluice {

Result<ScratchFolder> ScratchFolder::Make(std::string_view name) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string path = (parent / fmt::format("{}-XXXXXX", name)).string();
  if (!error && mkdtemp(path.data()) == nullptr) error.assign(errno, std::generic_category());
  if (error) {
    return Fail(ErrorCode::kUnavailable, fmt::format("cannot make a folder in {}: {}; set TMPDIR",
                                                     parent.string(), error.message()));
  }
  return ScratchFolder(std::move(path));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace sluice
