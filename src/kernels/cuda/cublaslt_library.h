// cuBLASLt, NVIDIA's library of matrix products, loaded at run time: the program is neither
// compiled nor linked against it. On AMD's GPUs, hipBLASLt replaces it, with the same functions
// (hipblaslt_library.h).
//
// The types and numbers below are those of cublasLt.h; cublaslt_values_test.cc compares them with
// the header, if it is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace sluice::device {
namespace cublaslt {

using Handle = struct HandleRecord*;
using Layout = struct LayoutRecord*;
using Operation = struct OperationRecord*;
using Preference = struct PreferenceRecord*;

// An algorithm of the library. May be written to a file and read again with the same version of the
// library.
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;  // error code; the other members are valid only if it is kSuccess
  float waves;
  int reserved[4];
};

// cublasStatus_t
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 7;
constexpr int kArchMismatch = 8;
constexpr int kNotSupported = 15;

// cudaDataType, cublasComputeType_t, cublasOperation_t
constexpr int kTypeF32 = 0;
constexpr int kTypeBF16 = 14;
constexpr int kTypeE4M3 = 28;
constexpr int kTypeE2M1 = 33;
constexpr int kComputeF32 = 68;
constexpr int32_t kPlain = 0;
constexpr int32_t kTransposed = 1;

// Attributes of an Operation
constexpr int kTransposeA = 3;         // int32_t
constexpr int kTransposeB = 4;         // int32_t
constexpr int kScalePointerA = 17;     // const void*
constexpr int kScalePointerB = 18;     // const void*
constexpr int kFastAccumulation = 25;  // int8_t
constexpr int kScaleModeA = 31;        // int32_t
constexpr int kScaleModeB = 32;        // int32_t

// Scale modes: one F32 for the matrix; one E4M3 per 16 elements of a column, ordered as in
// nvf4_scales.h; one F32 per row of A (per column of B).
constexpr int32_t kScaleScalar = 0;
constexpr int32_t kScaleGroups16 = 1;
constexpr int32_t kScaleOuterVector = 3;

// Attributes of a Preference
constexpr int kMaxWorkspace = 1;  // uint64_t
constexpr int kAlignmentA = 5;    // uint32_t
constexpr int kAlignmentB = 6;    // uint32_t
constexpr int kAlignmentC = 7;    // uint32_t
constexpr int kAlignmentD = 8;    // uint32_t

// The first versions (GetVersion) that support products of E2M1 with kScaleGroups16, and products
// of E4M3 with kScaleOuterVector.
constexpr int64_t kGroups16Version = 120800;
constexpr int64_t kOuterVectorVersion = 120900;

struct Functions {
  size_t (*get_version)();  // null if the table is hipBLASLt's
  const char* (*status_name)(int status);
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*layout_create)(Layout*, int type, uint64_t rows, uint64_t cols, int64_t ld);
  int (*layout_destroy)(Layout);
  int (*operation_create)(Operation*, int compute_type, int scale_type);
  int (*operation_destroy)(Operation);
  int (*operation_set)(Operation, int attribute, const void* value, size_t bytes);
  int (*preference_create)(Preference*);
  int (*preference_destroy)(Preference);
  int (*preference_set)(Preference, int attribute, const void* value, size_t bytes);
  int (*find_algorithms)(Handle, Operation, Layout a, Layout b, Layout c, Layout d, Preference,
                         int count, Heuristic* results, int* num_results);
  int (*check_algorithm)(Handle, Operation, Layout a, Layout b, Layout c, Layout d,
                         const Algorithm*, Heuristic* result);
  int (*multiply)(Handle, Operation, const void* alpha, const void* a, Layout, const void* b,
                  Layout, const void* beta, const void* c, Layout, void* d, Layout,
                  const Algorithm*, void* workspace, size_t workspace_bytes, void* stream);
};

}  // namespace cublaslt

// The opened library. It stays loaded until the program ends: CUDA's libraries have their own
// threads and exit handlers. Thread safety: const methods from any thread.
class CublasLtLibrary {
 public:
  // Opens `path`. If it is empty, opens the file named by SLUICE_CUBLASLT or, if the variable is
  // not set, the first existing one of UsualFiles. kNotFound names the files tried and what to
  // install; kUnsupported if the library lacks a function or is older than 12.
  static Result<std::unique_ptr<const CublasLtLibrary>> Open(const std::string& path);
  // Opens the library for a kind of devices: hipBLASLt for kHip (hipblaslt::Open), which requires
  // an empty path; Open(path) for others.
  static Result<std::unique_ptr<const CublasLtLibrary>> OpenFor(DeviceKind kind,
                                                                const std::string& path);
  // Returns paths of libcublasLt.so.13, then .12. Each is searched for in the loader's path, in
  // lib64 of CUDA_HOME, CUDA_PATH and /usr/local/cuda, and among the packages of the python3 in
  // PATH, where pip installs it (nvidia-cublas).
  static std::vector<std::string> UsualFiles();
  // Returns whether the user named the library that OpenFor(kind, "") opens; then a failure is an
  // error.
  static bool IsNamedByUser(DeviceKind kind);
  // Returns "cuBLASLt" or "hipBLASLt".
  static const char* NameFor(DeviceKind kind);

  const cublaslt::Functions& functions() const { return functions_; }
  int64_t version() const { return version_; }  // 130002: 13.0.2; for hipBLASLt 100200: 1.2.0
  std::string Describe() const;                 // "cuBLASLt 13.0.2 (libcublasLt.so.13)"

 private:
  CublasLtLibrary() = default;

  cublaslt::Functions functions_{};
  int64_t version_ = 0;
  std::string file_;
  bool is_amd_ = false;
};

}  // namespace sluice::device
