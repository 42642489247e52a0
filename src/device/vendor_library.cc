#include "device/vendor_library.h"

#include <dlfcn.h>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {

const char* VendorLibrary::FileOfUser(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != 0 ? value : nullptr;
}

Result<VendorLibrary> VendorLibrary::Open(const Names& names, const std::string& path,
                                          std::vector<std::string> (*usual_files)()) {
  std::vector<std::string> files = {path};
  if (path.empty()) {
    const char* named = FileOfUser(names.variable);
    files = named != nullptr ? std::vector<std::string>{named} : usual_files();
  }
  std::string reason;
  for (const std::string& file : files) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return VendorLibrary(library, file);
    // Reports the error of the first file that was tried.
    const char* message = dlerror();
    if (reason.empty() && message != nullptr) reason = message;
  }
  return Fail(
      ErrorCode::kNotFound,
      fmt::format("{} cannot be opened ({}); tried {}: install {}, or name its file with {}",
                  names.library, reason, fmt::join(files, ", "), names.install, names.variable));
}

bool VendorLibrary::Has(const char* name) const {
  return dlsym(library_, name) != nullptr;
}

void* VendorLibrary::Find(const char* name) {
  void* address = dlsym(library_, name);
  if (address == nullptr && missing_.empty()) missing_ = name;
  return address;
}

}  // namespace sluice
