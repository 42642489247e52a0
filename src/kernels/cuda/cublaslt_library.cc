#include "kernels/cuda/cublaslt_library.h"

#include <fmt/format.h>

#include "base/check.h"
#include "device/vendor_folders.h"
#include "device/vendor_library.h"
#include "kernels/cuda/hipblaslt_library.h"

namespace sluice::device {
namespace {

constexpr VendorLibrary::Names kNames = {
    .library = "cuBLASLt",
    .variable = "SLUICE_CUBLASLT",
    .install = "the CUDA toolkit's cuBLAS or pip's nvidia-cublas"};
constexpr int64_t kOldestVersion = 120000;

Status ResolveAll(VendorLibrary& library, cublaslt::Functions& f) {
  const auto resolve = [&](const char* name, auto& function) { library.Resolve(name, function); };
  resolve("cublasLtGetVersion", f.get_version);
  resolve("cublasLtGetStatusName", f.status_name);
  resolve("cublasLtCreate", f.create);
  resolve("cublasLtDestroy", f.destroy);
  resolve("cublasLtMatrixLayoutCreate", f.layout_create);
  resolve("cublasLtMatrixLayoutDestroy", f.layout_destroy);
  resolve("cublasLtMatmulDescCreate", f.operation_create);
  resolve("cublasLtMatmulDescDestroy", f.operation_destroy);
  resolve("cublasLtMatmulDescSetAttribute", f.operation_set);
  resolve("cublasLtMatmulPreferenceCreate", f.preference_create);
  resolve("cublasLtMatmulPreferenceDestroy", f.preference_destroy);
  resolve("cublasLtMatmulPreferenceSetAttribute", f.preference_set);
  resolve("cublasLtMatmulAlgoGetHeuristic", f.find_algorithms);
  resolve("cublasLtMatmulAlgoCheck", f.check_algorithm);
  resolve("cublasLtMatmul", f.multiply);
  if (library.missing().empty()) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{}: expected cuBLASLt 12 or later, found no function {}: install the "
                          "CUDA toolkit's cuBLAS, or name its file with {}",
                          library.file(), library.missing(), kNames.variable));
}

}  // namespace

std::vector<std::string> CublasLtLibrary::UsualFiles() {
  constexpr const char* kPackages[] = {"cu13", "cublas"};  // CUDA 13; CUDA 12
  const std::vector<std::string> folders = VendorFolders(kPackages);
  std::vector<std::string> files;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    for (const std::string& folder : folders) files.push_back(folder + name);
  }
  return files;
}

bool CublasLtLibrary::IsNamedByUser(DeviceKind kind) {
  if (kind == DeviceKind::kHip) return hipblaslt::IsNamedByUser();
  return VendorLibrary::FileOfUser(kNames.variable) != nullptr;
}

const char* CublasLtLibrary::NameFor(DeviceKind kind) {
  return kind == DeviceKind::kHip ? "hipBLASLt" : "cuBLASLt";
}

Result<std::unique_ptr<const CublasLtLibrary>> CublasLtLibrary::OpenFor(DeviceKind kind,
                                                                        const std::string& path) {
  if (kind != DeviceKind::kHip) return Open(path);
  CHECK(path.empty(), "SLUICE_HIPBLASLT names the file of hipBLASLt");
  ASSIGN_OR_RETURN(const hipblaslt::Library* const library, hipblaslt::Open());
  std::unique_ptr<CublasLtLibrary> result(new CublasLtLibrary);
  result->functions_ = library->functions;
  result->version_ = library->version;
  result->file_ = library->file;
  result->is_amd_ = true;
  return std::unique_ptr<const CublasLtLibrary>(std::move(result));
}

Result<std::unique_ptr<const CublasLtLibrary>> CublasLtLibrary::Open(const std::string& path) {
  ASSIGN_OR_RETURN(VendorLibrary library,
                   VendorLibrary::Open(kNames, path, &CublasLtLibrary::UsualFiles));
  std::unique_ptr<CublasLtLibrary> result(new CublasLtLibrary);
  result->file_ = library.file();
  RETURN_IF_ERROR(ResolveAll(library, result->functions_));
  result->version_ = static_cast<int64_t>(result->functions_.get_version());
  if (result->version_ < kOldestVersion) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected cuBLASLt 12 or later, found version {}: install a newer "
                            "CUDA toolkit's cuBLAS, or name its file with {}",
                            result->file_, result->version_, kNames.variable));
  }
  return std::unique_ptr<const CublasLtLibrary>(std::move(result));
}

std::string CublasLtLibrary::Describe() const {
  const int64_t major = is_amd_ ? 100000 : 10000;
  return fmt::format("{} {}.{}.{} ({})", is_amd_ ? "hipBLASLt" : "cuBLASLt", version_ / major,
                     version_ % major / 100, version_ % 100, file_);
}

}  // namespace sluice::device
