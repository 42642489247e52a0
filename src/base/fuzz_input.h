// Helpers of the fuzz targets; only fuzz targets include this.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace sluice::fuzz {

// Views the fuzzer's input as text.
inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Writes the input to a file whose name ends in `extension`, for code that reads only files. The
// next call overwrites the file; it is removed when the process ends.
inline std::filesystem::path File(std::string_view extension, std::string_view content) {
  struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("sluice_fuzz_" + std::to_string(::getpid()));
    Folder() { std::filesystem::create_directory(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  std::filesystem::path path = folder.path / ("input" + std::string(extension));
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// Aborts the process if `holds` is false; the fuzzer reports that as a finding.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace sluice::fuzz
