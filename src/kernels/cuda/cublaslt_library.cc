#include "kernels/cuda/cublaslt_library.h"

#include <dlfcn.h>
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "device/vendor_folders.h"

namespace sluice::device {
namespace {

constexpr const char* kVariable = "SLUICE_CUBLASLT";
constexpr int64_t kOldestVersion = 120000;

// Null where the caller's environment names none.
const char* FileOfUser() {
  const char* value = std::getenv(kVariable);
  return value != nullptr && *value != 0 ? value : nullptr;
}

// Fills in one function of the table.
template <typename Function>
Status Resolve(void* library, const std::string& file, const char* name, Function& function) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected cuBLASLt 12 or later, found no function {}: install the "
                            "CUDA toolkit's cuBLAS, or name its file with {}",
                            file, name, kVariable));
  }
  function = reinterpret_cast<Function>(address);
  return {};
}

Status ResolveAll(void* library, const std::string& file, cublaslt::Functions& f) {
  const auto resolve = [&](const char* name, auto& function) {
    return Resolve(library, file, name, function);
  };
  RETURN_IF_ERROR(resolve("cublasLtGetVersion", f.get_version));
  RETURN_IF_ERROR(resolve("cublasLtGetStatusName", f.status_name));
  RETURN_IF_ERROR(resolve("cublasLtCreate", f.create));
  RETURN_IF_ERROR(resolve("cublasLtDestroy", f.destroy));
  RETURN_IF_ERROR(resolve("cublasLtMatrixLayoutCreate", f.layout_create));
  RETURN_IF_ERROR(resolve("cublasLtMatrixLayoutDestroy", f.layout_destroy));
  RETURN_IF_ERROR(resolve("cublasLtMatmulDescCreate", f.operation_create));
  RETURN_IF_ERROR(resolve("cublasLtMatmulDescDestroy", f.operation_destroy));
  RETURN_IF_ERROR(resolve("cublasLtMatmulDescSetAttribute", f.operation_set));
  RETURN_IF_ERROR(resolve("cublasLtMatmulPreferenceCreate", f.preference_create));
  RETURN_IF_ERROR(resolve("cublasLtMatmulPreferenceDestroy", f.preference_destroy));
  RETURN_IF_ERROR(resolve("cublasLtMatmulPreferenceSetAttribute", f.preference_set));
  RETURN_IF_ERROR(resolve("cublasLtMatmulAlgoGetHeuristic", f.find_algorithms));
  RETURN_IF_ERROR(resolve("cublasLtMatmulAlgoCheck", f.check_algorithm));
  return resolve("cublasLtMatmul", f.multiply);
}

}  // namespace

std::vector<std::string> CublasLtLibrary::UsualFiles() {
  constexpr const char* kPackages[] = {"cu13", "cublas"};  // of CUDA 13; of CUDA 12
  const std::vector<std::string> folders = VendorFolders(kPackages);
  std::vector<std::string> files;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    for (const std::string& folder : folders) files.push_back(folder + name);
  }
  return files;
}

bool CublasLtLibrary::IsNamedByUser() {
  return FileOfUser() != nullptr;
}

Result<std::unique_ptr<const CublasLtLibrary>> CublasLtLibrary::Open(const std::string& path) {
  std::vector<std::string> files = {path};
  if (path.empty()) {
    const char* named = FileOfUser();
    files = named != nullptr ? std::vector<std::string>{named} : UsualFiles();
  }

  void* library = nullptr;
  std::string file, reason;
  for (const std::string& candidate : files) {
    library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      file = candidate;
      break;
    }
    // The first reason of a file that is there says more than that the others are not.
    const char* message = dlerror();
    if (reason.empty() && message != nullptr) reason = message;
  }
  if (library == nullptr) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("cuBLASLt cannot be opened ({}); tried {}: install the CUDA toolkit's "
                            "cuBLAS or pip's nvidia-cublas, or name its file with {}",
                            reason, fmt::join(files, ", "), kVariable));
  }

  std::unique_ptr<CublasLtLibrary> result(new CublasLtLibrary);
  result->file_ = file;
  RETURN_IF_ERROR(ResolveAll(library, file, result->functions_));
  result->version_ = static_cast<int64_t>(result->functions_.get_version());
  if (result->version_ < kOldestVersion) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected cuBLASLt 12 or later, found version {}: install a newer "
                            "CUDA toolkit's cuBLAS, or name its file with {}",
                            file, result->version_, kVariable));
  }
  return std::unique_ptr<const CublasLtLibrary>(std::move(result));
}

std::string CublasLtLibrary::Describe() const {
  return fmt::format("cuBLASLt {}.{}.{} ({})", version_ / 10000, version_ / 100 % 100,
                     version_ % 100, file_);
}

}  // namespace sluice::device
