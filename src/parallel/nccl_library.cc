#include "parallel/nccl_library.h"

#include <dlfcn.h>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "device/vendor_folders.h"

namespace sluice {
namespace {

constexpr const char* kVariable = "SLUICE_NCCL";
constexpr int kOldestVersion = 21400;  // the first whose calls need not wait

Status ResolveAll(void* library, const std::string& file, nccl::Functions& f) {
  std::string missing;
  const auto resolve = [&]<typename Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  resolve("ncclGetVersion", f.get_version);
  resolve("ncclGetUniqueId", f.get_unique_id);
  resolve("ncclCommInitRankConfig", f.init_rank);
  resolve("ncclCommAbort", f.abort);
  resolve("ncclCommGetAsyncError", f.get_async_error);
  resolve("ncclGetErrorString", f.error_string);
  resolve("ncclGetLastError", f.last_error);
  resolve("ncclGroupStart", f.group_start);
  resolve("ncclGroupEnd", f.group_end);
  resolve("ncclAllGather", f.all_gather);
  resolve("ncclBroadcast", f.broadcast);
  resolve("ncclSend", f.send);
  resolve("ncclRecv", f.receive);
  if (missing.empty()) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{}: expected NCCL 2.14 or later, found no function {}: install a newer "
                          "NCCL, or name its file with {}",
                          file, missing, kVariable));
}

}  // namespace

std::vector<std::string> NcclLibrary::UsualFiles() {
  constexpr const char* kPackages[] = {"nccl"};
  std::vector<std::string> files = VendorFolders(kPackages);
  for (std::string& file : files) file += "libnccl.so.2";
  return files;
}

Result<std::unique_ptr<const NcclLibrary>> NcclLibrary::Open(const std::string& path) {
  std::vector<std::string> files = {path};
  if (path.empty()) {
    const char* named = std::getenv(kVariable);
    const bool is_named = named != nullptr && *named != 0;
    files = is_named ? std::vector<std::string>{named} : UsualFiles();
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
                fmt::format("NCCL, by which GPUs share a model, cannot be opened ({}); tried {}: "
                            "install libnccl2 or pip's nvidia-nccl, or name its file with {}",
                            reason, fmt::join(files, ", "), kVariable));
  }
  std::unique_ptr<NcclLibrary> result(new NcclLibrary);
  result->file_ = file;
  RETURN_IF_ERROR(ResolveAll(library, file, result->functions_));
  if (result->functions_.get_version(&result->version_) != nccl::kSuccess ||
      result->version_ < kOldestVersion) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected NCCL 2.14 or later, found version {}: install a newer "
                            "NCCL, or name its file with {}",
                            file, result->version_, kVariable));
  }
  return std::unique_ptr<const NcclLibrary>(std::move(result));
}

std::string NcclLibrary::Describe() const {
  return fmt::format("NCCL {}.{}.{} ({})", version_ / 10000, version_ / 100 % 100, version_ % 100,
                     file_);
}

}  // namespace sluice
