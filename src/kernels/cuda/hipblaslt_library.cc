#include "kernels/cuda/hipblaslt_library.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "device/vendor_folders.h"
#include "device/vendor_library.h"

namespace sluice::device::hipblaslt {
namespace {

using cublaslt::Algorithm;
using cublaslt::Functions;
using cublaslt::Handle;
using cublaslt::Heuristic;
using cublaslt::Layout;
using cublaslt::Operation;
using cublaslt::Preference;

constexpr VendorLibrary::Names kNames = {
    .library = "hipBLASLt", .variable = "SLUICE_HIPBLASLT", .install = "ROCm's package hipblaslt"};

// The types and numbers of hipblaslt.h and hipblas-common.h.
struct RawAlgorithm {
  uint8_t data[16];
  size_t most_workspace_bytes;
};
struct RawHeuristic {
  RawAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(RawAlgorithm) == 24 && sizeof(RawHeuristic) == 56);
static_assert(sizeof(RawAlgorithm) <= sizeof(Algorithm));

enum RawStatus : int {
  kRawSuccess = 0,
  kRawInvalidValue = 3,
  kRawNotSupported = 7,
  kRawArchMismatch = 8,
  kRawInvalidEnum = 10,
};
// A status that cuBLASLt does not have becomes this number plus the status.
constexpr int kOtherStatus = 1000;

constexpr int kRawComputeF32 = 2;
constexpr int32_t kRawPlain = 111, kRawTransposed = 112;
constexpr int kRawMaxWorkspace = 1;

// Maximum number of proposals that are searched for an algorithm.
constexpr int kMostProposals = 32;

struct RawFunctions {
  int (*get_version)(Handle, int* version);
  int (*find_algorithms)(Handle, Operation, Layout a, Layout b, Layout c, Layout d, Preference,
                         int count, RawHeuristic* results, int* num_results);
  int (*operation_create)(Operation*, int compute_type, int scale_type);
  int (*operation_set)(Operation, int attribute, const void* value, size_t bytes);
  int (*preference_set)(Preference, int attribute, const void* value, size_t bytes);
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*layout_create)(Layout*, int type, uint64_t rows, uint64_t cols, int64_t ld);
  int (*layout_destroy)(Layout);
  int (*operation_destroy)(Operation);
  int (*preference_create)(Preference*);
  int (*preference_destroy)(Preference);
  int (*multiply)(Handle, Operation, const void* alpha, const void* a, Layout, const void* b,
                  Layout, const void* beta, const void* c, Layout, void* d, Layout,
                  const RawAlgorithm*, void* workspace, size_t workspace_bytes, void* stream);
};

RawFunctions& Raw() {
  static RawFunctions functions;
  return functions;
}

int StatusOf(int raw) {
  switch (raw) {
    case kRawSuccess: return cublaslt::kSuccess;
    case kRawInvalidValue:
    case kRawInvalidEnum: return cublaslt::kInvalidValue;
    case kRawNotSupported: return cublaslt::kNotSupported;
    case kRawArchMismatch: return cublaslt::kArchMismatch;
    default: return kOtherStatus + raw;
  }
}

const char* StatusName(int status) {
  switch (status) {
    case cublaslt::kSuccess: return "HIPBLAS_STATUS_SUCCESS";
    case cublaslt::kInvalidValue: return "HIPBLAS_STATUS_INVALID_VALUE";
    case cublaslt::kNotSupported: return "HIPBLAS_STATUS_NOT_SUPPORTED";
    case cublaslt::kArchMismatch: return "HIPBLAS_STATUS_ARCH_MISMATCH";
    case kOtherStatus + 1: return "HIPBLAS_STATUS_NOT_INITIALIZED";
    case kOtherStatus + 2: return "HIPBLAS_STATUS_ALLOC_FAILED";
    case kOtherStatus + 4: return "HIPBLAS_STATUS_MAPPING_ERROR";
    case kOtherStatus + 5: return "HIPBLAS_STATUS_EXECUTION_FAILED";
    case kOtherStatus + 6: return "HIPBLAS_STATUS_INTERNAL_ERROR";
    case kOtherStatus + 9: return "HIPBLAS_STATUS_HANDLE_IS_NULLPTR";
    default: return "HIPBLAS_STATUS_UNKNOWN";
  }
}

RawAlgorithm RawOf(const Algorithm& algorithm) {
  RawAlgorithm raw;
  memcpy(&raw, algorithm.data, sizeof(raw));
  return raw;
}

// Element types have the same numbers as in cuBLASLt.
int CreateLayout(Layout* layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  return StatusOf(Raw().layout_create(layout, type, rows, cols, ld));
}

int CreateOperation(Operation* operation, int compute_type, int scale_type) {
  CHECK(compute_type == cublaslt::kComputeF32, "sums other than F32");
  return StatusOf(Raw().operation_create(operation, kRawComputeF32, scale_type));
}

int SetOperation(Operation operation, int attribute, const void* value, size_t bytes) {
  const auto set = [&](int raw_attribute, const void* raw_value) {
    return StatusOf(Raw().operation_set(operation, raw_attribute, raw_value, bytes));
  };
  switch (attribute) {
    case cublaslt::kTransposeA:
    case cublaslt::kTransposeB: {
      int32_t transposed = 0;
      memcpy(&transposed, value, sizeof(transposed));
      const int32_t raw = transposed == cublaslt::kTransposed ? kRawTransposed : kRawPlain;
      return set(attribute == cublaslt::kTransposeA ? 0 : 1, &raw);
    }
    case cublaslt::kScalePointerA: return set(5, value);
    case cublaslt::kScalePointerB: return set(6, value);
    // These attributes and their values have the same numbers as in cuBLASLt.
    case cublaslt::kScaleModeA:
    case cublaslt::kScaleModeB: return set(attribute, value);
    case cublaslt::kFastAccumulation:
      return *static_cast<const int8_t*>(value) == 0 ? cublaslt::kSuccess : cublaslt::kNotSupported;
    default: return cublaslt::kInvalidValue;
  }
}

int SetPreference(Preference preference, int attribute, const void* value, size_t bytes) {
  switch (attribute) {
    case cublaslt::kMaxWorkspace:
      return StatusOf(Raw().preference_set(preference, kRawMaxWorkspace, value, bytes));
    case cublaslt::kAlignmentA:
    case cublaslt::kAlignmentB:
    case cublaslt::kAlignmentC:
    case cublaslt::kAlignmentD: return cublaslt::kSuccess;
    default: return cublaslt::kInvalidValue;
  }
}

int FindAlgorithms(Handle handle, Operation operation, Layout a, Layout b, Layout c, Layout d,
                   Preference preference, int count, Heuristic* results, int* num_results) {
  std::vector<RawHeuristic> found(static_cast<size_t>(count));
  int num_found = 0;
  const int status = StatusOf(Raw().find_algorithms(handle, operation, a, b, c, d, preference,
                                                    count, found.data(), &num_found));
  if (status != cublaslt::kSuccess) return status;
  *num_results = std::clamp(num_found, 0, count);
  for (int i = 0; i < *num_results; ++i) {
    const RawHeuristic& from = found[static_cast<size_t>(i)];
    Heuristic& to = results[i];
    to = {.algorithm = {},
          .workspace_bytes = from.workspace_bytes,
          .state = StatusOf(from.state),
          .waves = from.waves,
          .reserved = {}};
    memcpy(to.algorithm.data, &from.algorithm, sizeof(from.algorithm));
  }
  return cublaslt::kSuccess;
}

// The library's C interface cannot check an algorithm. Instead, this checks whether the library
// proposes the algorithm.
int CheckAlgorithm(Handle handle, Operation operation, Layout a, Layout b, Layout c, Layout d,
                   const Algorithm* algorithm, Heuristic* result) {
  const RawAlgorithm raw = RawOf(*algorithm);
  Preference preference = nullptr;
  if (const int status = StatusOf(Raw().preference_create(&preference));
      status != cublaslt::kSuccess)
    return status;
  const uint64_t most_workspace = raw.most_workspace_bytes;
  int status =
      SetPreference(preference, cublaslt::kMaxWorkspace, &most_workspace, sizeof(most_workspace));
  Heuristic proposals[kMostProposals];
  int count = 0;
  if (status == cublaslt::kSuccess)
    status = FindAlgorithms(handle, operation, a, b, c, d, preference, kMostProposals, proposals,
                            &count);
  Raw().preference_destroy(preference);
  if (status != cublaslt::kSuccess) return status;
  for (int i = 0; i < count; ++i) {
    if (proposals[i].state != cublaslt::kSuccess ||
        memcmp(proposals[i].algorithm.data, raw.data, sizeof(raw.data)) != 0)
      continue;
    *result = proposals[i];
    return cublaslt::kSuccess;
  }
  return cublaslt::kNotSupported;
}

int Multiply(Handle handle, Operation operation, const void* alpha, const void* a, Layout a_layout,
             const void* b, Layout b_layout, const void* beta, const void* c, Layout c_layout,
             void* d, Layout d_layout, const Algorithm* algorithm, void* workspace,
             size_t workspace_bytes, void* stream) {
  const RawAlgorithm raw = RawOf(*algorithm);
  return StatusOf(Raw().multiply(handle, operation, alpha, a, a_layout, b, b_layout, beta, c,
                                 c_layout, d, d_layout, &raw, workspace, workspace_bytes, stream));
}

Functions TranslatedFunctions() {
  Functions f = {};
  f.status_name = StatusName;
  f.create = [](Handle* handle) { return StatusOf(Raw().create(handle)); };
  f.destroy = [](Handle handle) { return StatusOf(Raw().destroy(handle)); };
  f.layout_create = CreateLayout;
  f.layout_destroy = [](Layout layout) { return StatusOf(Raw().layout_destroy(layout)); };
  f.operation_create = CreateOperation;
  f.operation_destroy = [](Operation operation) {
    return StatusOf(Raw().operation_destroy(operation));
  };
  f.operation_set = SetOperation;
  f.preference_create = [](Preference* preference) {
    return StatusOf(Raw().preference_create(preference));
  };
  f.preference_destroy = [](Preference preference) {
    return StatusOf(Raw().preference_destroy(preference));
  };
  f.preference_set = SetPreference;
  f.find_algorithms = FindAlgorithms;
  f.check_algorithm = CheckAlgorithm;
  f.multiply = Multiply;
  return f;
}

std::vector<std::string> UsualFiles() {
  std::vector<std::string> files;
  for (const std::string& folder : RocmFolders()) {
    for (const char* name : {"libhipblaslt.so.1", "libhipblaslt.so.0"})
      files.push_back(folder + name);
  }
  return files;
}

Result<Library> OpenOnce() {
  ASSIGN_OR_RETURN(VendorLibrary from, VendorLibrary::Open(kNames, "", UsualFiles));
  RawFunctions& raw = Raw();
  from.Resolve("hipblasLtGetVersion", raw.get_version);
  from.Resolve("hipblasLtCreate", raw.create);
  from.Resolve("hipblasLtDestroy", raw.destroy);
  from.Resolve("hipblasLtMatrixLayoutCreate", raw.layout_create);
  from.Resolve("hipblasLtMatrixLayoutDestroy", raw.layout_destroy);
  from.Resolve("hipblasLtMatmulDescCreate", raw.operation_create);
  from.Resolve("hipblasLtMatmulDescDestroy", raw.operation_destroy);
  from.Resolve("hipblasLtMatmulDescSetAttribute", raw.operation_set);
  from.Resolve("hipblasLtMatmulPreferenceCreate", raw.preference_create);
  from.Resolve("hipblasLtMatmulPreferenceDestroy", raw.preference_destroy);
  from.Resolve("hipblasLtMatmulPreferenceSetAttribute", raw.preference_set);
  from.Resolve("hipblasLtMatmulAlgoGetHeuristic", raw.find_algorithms);
  from.Resolve("hipblasLtMatmul", raw.multiply);
  if (!from.missing().empty())
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected hipBLASLt, found no function {}: install {}, or name "
                            "another file with {}",
                            from.file(), from.missing(), kNames.install, kNames.variable));
  // The library reports its version only after it was initialized.
  Handle handle = nullptr;
  int version = 0;
  int status = StatusOf(raw.create(&handle));
  if (status == cublaslt::kSuccess) {
    status = StatusOf(raw.get_version(handle, &version));
    raw.destroy(handle);
  }
  if (status != cublaslt::kSuccess)
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} does not start: {}: install the hipBLASLt of a ROCm that knows "
                            "this GPU, or name its file with {}",
                            from.file(), StatusName(status), kNames.variable));
  return Library{.functions = TranslatedFunctions(), .version = version, .file = from.file()};
}

}  // namespace

Result<const Library*> Open() {
  static const Result<Library> library = OpenOnce();
  if (!library) return tl::unexpected<Error>(library.error());
  return &*library;
}

bool IsNamedByUser() {
  return VendorLibrary::FileOfUser(kNames.variable) != nullptr;
}

}  // namespace sluice::device::hipblaslt
