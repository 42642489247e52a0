// A vendor's library, opened at run time: the program is neither compiled nor linked against it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

class VendorLibrary {
 public:
  // Names for error messages.
  struct Names {
    const char* library;
    const char* variable;  // environment variable that names the file
    const char* install;   // what to install
  };

  // Opens `path`; if empty, the file named by the environment variable, else the first of
  // `usual_files` that can be opened. The library stays open until the process ends. kNotFound
  // lists the files that were tried.
  static Result<VendorLibrary> Open(const Names& names, const std::string& path,
                                    std::vector<std::string> (*usual_files)());
  // Returns the value of the environment variable; null if it is not set.
  static const char* FileOfUser(const char* variable);

  const std::string& file() const { return file_; }

  // Looks up a function; `Function` is a function pointer type. Sets null if the library does not
  // have the function; missing() returns the name of the first such function.
  template <typename Function>
  void Resolve(const char* name, Function& function) {
    function = reinterpret_cast<Function>(Find(name));
  }
  // Returns whether the library has a symbol; does not affect missing().
  bool Has(const char* name) const;
  // Returns "" if all functions were found.
  const std::string& missing() const { return missing_; }

 private:
  VendorLibrary(void* library, std::string file) : library_(library), file_(std::move(file)) {}
  void* Find(const char* name);

  void* library_;
  std::string file_;
  std::string missing_;
};

}  // namespace sluice
