#include "parallel/nccl_library.h"

#include <fmt/format.h>

#include "device/vendor_folders.h"
#include "device/vendor_library.h"

namespace sluice {
namespace {

constexpr VendorLibrary::Names kNames = {.library = "NCCL, by which GPUs share a model,",
                                         .variable = "SLUICE_NCCL",
                                         .install = "libnccl2 or pip's nvidia-nccl"};
constexpr int kOldestVersion = 21400;  // the first version with non-blocking communicators

Status ResolveAll(VendorLibrary& library, nccl::Functions& f) {
  const auto resolve = [&](const char* name, auto& function) { library.Resolve(name, function); };
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
  if (library.missing().empty()) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{}: expected NCCL 2.14 or later, found no function {}: install a newer "
                          "NCCL, or name its file with {}",
                          library.file(), library.missing(), kNames.variable));
}

}  // namespace

std::vector<std::string> NcclLibrary::UsualFiles() {
  constexpr const char* kPackages[] = {"nccl"};
  std::vector<std::string> files = VendorFolders(kPackages);
  for (std::string& file : files) file += "libnccl.so.2";
  return files;
}

Result<std::unique_ptr<const NcclLibrary>> NcclLibrary::Open(const std::string& path) {
  ASSIGN_OR_RETURN(VendorLibrary library,
                   VendorLibrary::Open(kNames, path, &NcclLibrary::UsualFiles));
  std::unique_ptr<NcclLibrary> result(new NcclLibrary);
  result->file_ = library.file();
  RETURN_IF_ERROR(ResolveAll(library, result->functions_));
  if (result->functions_.get_version(&result->version_) != nccl::kSuccess ||
      result->version_ < kOldestVersion) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected NCCL 2.14 or later, found version {}: install a newer "
                            "NCCL, or name its file with {}",
                            result->file_, result->version_, kNames.variable));
  }
  return std::unique_ptr<const NcclLibrary>(std::move(result));
}

std::string NcclLibrary::Describe() const {
  return fmt::format("NCCL {}.{}.{} ({})", version_ / 10000, version_ / 100 % 100, version_ % 100,
                     file_);
}

}  // namespace sluice
