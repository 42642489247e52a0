// A folder for temporary files.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace sluice {

// A new folder that only this user may enter. Ownership: move-only; the destructor removes the
// folder with its files, and ignores failures to do so.
class ScratchFolder {
 public:
  // `name`: the beginning of the folder's name. kUnavailable names the parent folder and the
  // system's reason.
  static Result<ScratchFolder> Make(std::string_view name);
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

}  // namespace sluice
