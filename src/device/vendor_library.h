// A library of an accelerator's vendor, opened when the program runs: the program is neither
// compiled nor linked against it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

class VendorLibrary {
 public:
  // How messages speak of it.
  struct Names {
    const char* library;
    const char* variable;  // of the environment, that names the file
    const char* install;   // what to install
  };

  // Opens `path`; where that is empty the file that the environment names, else the first of
  // `usual_files` that can be opened. It stays open for the life of the process. kNotFound says
  // what was tried.
  static Result<VendorLibrary> Open(const Names& names, const std::string& path,
                                    std::vector<std::string> (*usual_files)());
  // Null where the environment names none.
  static const char* FileOfUser(const char* variable);

  const std::string& file() const { return file_; }

  // Fills in a function of the type `Function`, a pointer: null where the library has none of the
  // name, and missing() tells of the first such name.
  template <typename Function>
  void Resolve(const char* name, Function& function) {
    function = reinterpret_cast<Function>(Find(name));
  }
  // "" where all functions were found.
  const std::string& missing() const { return missing_; }

 private:
  VendorLibrary(void* library, std::string file) : library_(library), file_(std::move(file)) {}
  void* Find(const char* name);

  void* library_;
  std::string file_;
  std::string missing_;
};

}  // namespace sluice
