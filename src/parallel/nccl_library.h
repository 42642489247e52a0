// NCCL, NVIDIA's library of exchanges between GPUs, or RCCL, AMD's, which has the same functions
// and numbers. Opened at run time: the program is neither compiled nor linked against them.
//
// The types and numbers below are those of nccl.h; nccl_values_test.cc compares them with the
// header if it is installed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {
namespace nccl {

using Comm = struct CommRecord*;

struct UniqueId {
  char bytes[128];
};

// ncclConfig_t as of 2.14. Newer libraries read it according to `version` and `size`.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 21400;
  int blocking = 0;
};

// ncclResult_t
constexpr int kSuccess = 0;
constexpr int kSystemError = 2;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kRemoteError = 6;
constexpr int kInProgress = 7;
// ncclDataType_t: all data are sent as bytes.
constexpr int kBytes = 1;

// A stream is a cudaStream_t or a hipStream_t.
struct Functions {
  int (*get_version)(int* version);
  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(Comm*, int size, UniqueId, int rank, Config*);
  int (*abort)(Comm);
  int (*get_async_error)(Comm, int* error);
  const char* (*error_string)(int result);
  const char* (*last_error)(Comm);
  int (*group_start)();
  int (*group_end)();
  int (*all_gather)(const void* from, void* to, size_t count, int type, Comm, void* stream);
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, Comm,
                   void* stream);
  int (*send)(const void* from, size_t count, int type, int peer, Comm, void* stream);
  int (*receive)(void* to, size_t count, int type, int peer, Comm, void* stream);
};

}  // namespace nccl

enum class NcclMaker { kNvidia, kAmd };

// The opened library. It stays loaded until the program ends. Thread safety: any thread may call
// const methods.
class NcclLibrary {
 public:
  // Opens `path`. If empty: the file named by SLUICE_NCCL (AMD: SLUICE_RCCL) if set, else the first
  // of the usual files that exists: libnccl.so.2 in the folders of VendorFolders and in that of
  // pip's nvidia-nccl; librccl.so.1 in RocmFolders. kNotFound names what was tried and what to
  // install; kUnsupported if a function is missing or the version is older than 2.14.
  static Result<std::unique_ptr<const NcclLibrary>> Open(const std::string& path,
                                                         NcclMaker maker = NcclMaker::kNvidia);

  const nccl::Functions& functions() const { return functions_; }
  int version() const { return version_; }  // for example 22809 for 2.28.9
  std::string Describe() const;  // "NCCL 2.28.9 (libnccl.so.2)", "RCCL 2.27.7 (librccl.so.1)"

 private:
  NcclLibrary() = default;

  nccl::Functions functions_{};
  NcclMaker maker_ = NcclMaker::kNvidia;
  int version_ = 0;
  std::string file_;
};

}  // namespace sluice
