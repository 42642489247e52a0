#include "parallel/nccl_library.h"

#include <fmt/format.h>

#include "device/vendor_folders.h"
#include "device/vendor_library.h"

namespace sluice {
namespace {

constexpr VendorLibrary::Names kNvidiaNames = {.library = "NCCL, by which GPUs share a model,",
                                               .variable = "SLUICE_NCCL",
                                               .install = "libnccl2 or pip's nvidia-nccl"};
constexpr VendorLibrary::Names kAmdNames = {.library = "RCCL, by which GPUs share a model,",
                                            .variable = "SLUICE_RCCL",
                                            .install = "ROCm's package rccl"};

const VendorLibrary::Names& NamesOf(NcclMaker maker) {
  return maker == NcclMaker::kAmd ? kAmdNames : kNvidiaNames;
}
const char* NameOf(NcclMaker maker) {
  return maker == NcclMaker::kAmd ? "RCCL" : "NCCL";
}

std::vector<std::string> UsualNcclFiles() {
  constexpr const char* kPackages[] = {"nccl"};
  std::vector<std::string> files = VendorFolders(kPackages);
  for (std::string& file : files) file += "libnccl.so.2";
  return files;
}
std::vector<std::string> UsualRcclFiles() {
  std::vector<std::string> files = RocmFolders();
  for (std::string& file : files) file += "librccl.so.1";
  return files;
}

constexpr int kOldestVersion = 21400;  // the first version with non-blocking communicators

Status ResolveAll(VendorLibrary& library, NcclMaker maker, nccl::Functions& f) {
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
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format("{0}: expected {1} 2.14 or later, found no function {2}: install a newer "
                  "{1}, or name its file with {3}",
                  library.file(), NameOf(maker), library.missing(), NamesOf(maker).variable));
}

}  // namespace

Result<std::unique_ptr<const NcclLibrary>> NcclLibrary::Open(const std::string& path,
                                                             NcclMaker maker) {
  ASSIGN_OR_RETURN(VendorLibrary library,
                   VendorLibrary::Open(NamesOf(maker), path,
                                       maker == NcclMaker::kAmd ? UsualRcclFiles : UsualNcclFiles));
  std::unique_ptr<NcclLibrary> result(new NcclLibrary);
  result->maker_ = maker;
  result->file_ = library.file();
  RETURN_IF_ERROR(ResolveAll(library, maker, result->functions_));
  if (result->functions_.get_version(&result->version_) != nccl::kSuccess ||
      result->version_ < kOldestVersion) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{0}: expected {1} 2.14 or later, found version {2}: install a newer "
                    "{1}, or name its file with {3}",
                    result->file_, NameOf(maker), result->version_, NamesOf(maker).variable));
  }
  return std::unique_ptr<const NcclLibrary>(std::move(result));
}

std::string NcclLibrary::Describe() const {
  return fmt::format("{} {}.{}.{} ({})", NameOf(maker_), version_ / 10000, version_ / 100 % 100,
                     version_ % 100, file_);
}

}  // namespace sluice
