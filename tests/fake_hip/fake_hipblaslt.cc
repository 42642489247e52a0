// Implements hipBLASLt's functions by plain products on the CPU, which are computed when the
// stream's work runs. Its constants are copied from hipblaslt.h and hipblas-common.h, independently
// of the program's constants. Refuses incomplete or inconsistent descriptions of a product.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "fake_hip.h"
#include "stream.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

#define HIPBLASLT extern "C" __attribute__((visibility("default")))

extern "C" fake_hip::Machine* fake_hip_machine();

namespace fake_hipblaslt {

// hipblasStatus_t
enum : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 3, kNotSupported = 7 };
// hipDataType, hipblasComputeType_t, hipblasOperation_t, hipblasLtMatmulMatrixScale_t
enum : int { kF32 = 0, kBF16 = 14, kE4M3 = 28 };
constexpr int kComputeF32 = 2;
constexpr int32_t kPlain = 111, kTransposed = 112;
constexpr int32_t kScaleScalar = 0, kScaleOuterVector = 3;
// hipblasLtMatmulDescAttributes_t, hipblasLtMatmulPreferenceAttributes_t
enum : int { kTransA = 0, kTransB = 1, kScaleA = 5, kScaleB = 6, kModeA = 31, kModeB = 32 };
constexpr int kMaxWorkspace = 1;

struct Handle {};
struct Layout {
  int type;
  int64_t rows, cols, ld;
};
struct Operation {
  int32_t trans_a = kPlain, trans_b = kPlain;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  int32_t mode_a = kScaleScalar, mode_b = kScaleScalar;
};
struct Preference {
  uint64_t max_workspace = 0;
};
struct Algorithm {
  unsigned char data[16];  // the index, then zeros
  size_t max_workspace_bytes;
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

// The algorithms, in the order in which they are proposed. The first one accepts only even numbers
// of columns.
constexpr int kIndices[] = {1009, 7};
constexpr size_t kWorkspace[] = {64 << 10, 0};

fake_hip::Machine& TheMachine() {
  return *fake_hip_machine();
}
int Refuse(const char* complaint, int status = kInvalidValue) {
  TheMachine().complaint = complaint;
  return status;
}
void Add(int64_t fake_hip::Machine::*number, int64_t difference) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  TheMachine().*number += difference;
}
template <typename Record>
int Create(Record** record, Record value) {
  if (record == nullptr) return Refuse("no place for a record");
  *record = new Record(value);
  Add(&fake_hip::Machine::num_records, 1);
  return kSuccess;
}
template <typename Record>
int Destroy(Record* record) {
  if (record == nullptr) return Refuse("no record to destroy");
  delete record;
  Add(&fake_hip::Machine::num_records, -1);
  return kSuccess;
}
template <typename T>
int Set(T& member, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return Refuse("an attribute of a wrong size");
  memcpy(&member, value, sizeof(T));
  return kSuccess;
}

double Load(const void* data, int type, int64_t index) {
  if (type == kBF16)
    return static_cast<double>(ToFloat(static_cast<const sluice::BFloat16*>(data)[index]));
  return static_cast<double>(ToFloat(static_cast<const sluice::Float8E4M3*>(data)[index]));
}

int Examine(const Operation* operation, const Layout* a, const Layout* b, const Layout* c,
            const Layout* d) {
  if (operation == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr)
    return Refuse("a record is missing");
  if (operation->trans_a != kTransposed || operation->trans_b != kPlain)
    return Refuse("not the transpose of A times B");
  if (a->rows != b->rows || a->cols != d->rows || b->cols != d->cols)
    return Refuse("shapes that do not meet");
  if (c->type != d->type || c->rows != d->rows || c->cols != d->cols || c->ld != d->ld)
    return Refuse("C unlike D");
  for (const Layout* layout : {a, b, d}) {
    if (layout->ld < layout->rows || layout->rows <= 0 || layout->cols <= 0)
      return Refuse("a leading dimension shorter than a column, or no columns");
  }
  if (a->type != b->type || (a->type != kBF16 && a->type != kE4M3))
    return Refuse("types of A and B");
  if (d->type != kBF16 && d->type != kF32) return Refuse("type of D");
  // gfx942 multiplies HIP_R_8F_E4M3_FNUZ, which is number 1000, instead.
  if (a->type == kE4M3 && TheMachine().architecture != "gfx950")
    return Refuse("an FP8 that the device does not multiply", kNotSupported);
  if (operation->mode_a != operation->mode_b) return Refuse("scale modes that differ");
  const bool has_vectors = operation->mode_a == kScaleOuterVector;
  if (!has_vectors && operation->mode_a != kScaleScalar)
    return Refuse("scale modes", kNotSupported);
  if ((operation->scale_a != nullptr) != has_vectors ||
      (operation->scale_b != nullptr) != has_vectors)
    return Refuse("a scale mode without scales, or the other way round");
  if (has_vectors && a->type != kE4M3) return Refuse("scales of BF16", kNotSupported);
  if (TheMachine().refuses_products) return Refuse("everything, as told", kNotSupported);
  return kSuccess;
}

int IndexOf(const Algorithm& algorithm) {
  int index = 0;
  memcpy(&index, algorithm.data, sizeof(index));
  return index;
}

}  // namespace fake_hipblaslt

using namespace fake_hipblaslt;  // NOLINT: this file is that library

HIPBLASLT int hipblasLtCreate(void** handle) {
  if (const int status = TheMachine().next_handle; status != kSuccess) {
    TheMachine().next_handle = kSuccess;
    return Refuse("as told", status);
  }
  return Create(reinterpret_cast<Handle**>(handle), Handle{});
}
HIPBLASLT int hipblasLtDestroy(void* handle) {
  return Destroy(static_cast<Handle*>(handle));
}
HIPBLASLT int hipblasLtGetVersion(void* handle, int* version) {
  if (handle == nullptr) return Refuse("no handle", kNotInitialized);
  *version = TheMachine().products_version;
  return kSuccess;
}

HIPBLASLT int hipblasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  return Create(layout, Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld});
}
HIPBLASLT int hipblasLtMatrixLayoutDestroy(Layout* layout) {
  return Destroy(layout);
}

HIPBLASLT int hipblasLtMatmulDescCreate(Operation** operation, int compute_type, int scale_type) {
  if (compute_type != kComputeF32 || scale_type != kF32)
    return Refuse("sums and scales other than F32");
  return Create(operation, Operation{});
}
HIPBLASLT int hipblasLtMatmulDescDestroy(Operation* operation) {
  return Destroy(operation);
}
HIPBLASLT int hipblasLtMatmulDescSetAttribute(Operation* operation, int attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case kTransA: return Set(operation->trans_a, value, bytes);
    case kTransB: return Set(operation->trans_b, value, bytes);
    case kScaleA: return Set(operation->scale_a, value, bytes);
    case kScaleB: return Set(operation->scale_b, value, bytes);
    case kModeA: return Set(operation->mode_a, value, bytes);
    case kModeB: return Set(operation->mode_b, value, bytes);
    default: return Refuse("an unknown attribute");
  }
}

HIPBLASLT int hipblasLtMatmulPreferenceCreate(Preference** preference) {
  return Create(preference, Preference{});
}
HIPBLASLT int hipblasLtMatmulPreferenceDestroy(Preference* preference) {
  return Destroy(preference);
}
HIPBLASLT int hipblasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute,
                                                    const void* value, size_t bytes) {
  if (attribute != kMaxWorkspace) return Refuse("an unknown preference");
  return Set(preference->max_workspace, value, bytes);
}

HIPBLASLT int hipblasLtMatmulAlgoGetHeuristic(void* handle, const Operation* operation,
                                              const Layout* a, const Layout* b, const Layout* c,
                                              const Layout* d, const Preference* preference,
                                              int count, Heuristic* results, int* num_results) {
  if (handle == nullptr || preference == nullptr || count <= 0) return Refuse("a bad search");
  if (const int status = Examine(operation, a, b, c, d); status != kSuccess) return status;
  *num_results = 0;
  for (int i = 0; i < 2 && *num_results < count; ++i) {
    if (kWorkspace[i] > preference->max_workspace || (i == 0 && b->cols % 2 != 0)) continue;
    Heuristic& result = results[(*num_results)++];
    result = {};
    memcpy(result.algorithm.data, &kIndices[i], sizeof(kIndices[i]));
    result.algorithm.max_workspace_bytes = preference->max_workspace;
    result.workspace_bytes = kWorkspace[i];
    result.state = kSuccess;
    result.waves = 1;
  }
  return kSuccess;
}

HIPBLASLT int hipblasLtMatmul(void* handle, const Operation* operation, const void* alpha,
                              const void* a, const Layout* a_layout, const void* b,
                              const Layout* b_layout, const void* beta, const void* c,
                              const Layout* c_layout, void* d, const Layout* d_layout,
                              const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                              void* stream) {
  if (handle == nullptr || stream == nullptr || alpha == nullptr || beta == nullptr ||
      a == nullptr || b == nullptr || c != d || d == nullptr || algorithm == nullptr)
    return Refuse("a bad product");
  if (const int status = Examine(operation, a_layout, b_layout, c_layout, d_layout);
      status != kSuccess)
    return status;
  const int index = IndexOf(*algorithm);
  if (index != kIndices[0] && index != kIndices[1]) return Refuse("not an algorithm");
  if (index == kIndices[0] && b_layout->cols % 2 != 0)
    return Refuse("an algorithm for even columns alone");
  const size_t used = kWorkspace[index == kIndices[0] ? 0 : 1];
  if (used > workspace_bytes || (used > 0 && workspace == nullptr))
    return Refuse("a workspace that is too small");
  if (*static_cast<const float*>(beta) != 0) return Refuse("a sum with C", kNotSupported);
  if (const int status = TheMachine().next_product; status != kSuccess) {
    TheMachine().next_product = kSuccess;
    return Refuse("as told", status);
  }
  fake_hip::Enqueue(
      static_cast<fake_hip::Stream*>(stream),
      [=, at = *a_layout, bt = *b_layout, dt = *d_layout, how = *operation,
       factor = *static_cast<const float*>(alpha)] {
        if (used > 0) memset(workspace, 0xFF, used);
        std::vector<double> rows, column(static_cast<size_t>(at.rows));
        for (int64_t i = 0; i < dt.rows; ++i)
          for (int64_t p = 0; p < at.rows; ++p) rows.push_back(Load(a, at.type, i * at.ld + p));
        for (int64_t j = 0; j < dt.cols; ++j) {
          for (int64_t p = 0; p < at.rows; ++p)
            column[static_cast<size_t>(p)] = Load(b, bt.type, j * bt.ld + p);
          for (int64_t i = 0; i < dt.rows; ++i) {
            const double* const row = rows.data() + i * at.rows;
            double sum = 0;
            for (int64_t p = 0; p < at.rows; ++p) sum += row[p] * column[static_cast<size_t>(p)];
            if (how.scale_a != nullptr)
              sum *= static_cast<double>(how.scale_a[i]) * static_cast<double>(how.scale_b[j]);
            const float result = factor * static_cast<float>(sum);
            if (dt.type == kBF16)
              static_cast<sluice::BFloat16*>(d)[j * dt.ld + i] = sluice::ToBFloat16(result);
            else
              static_cast<float*>(d)[j * dt.ld + i] = result;
          }
        }
        Add(&fake_hip::Machine::num_products, 1);
      },
      true);
  return kSuccess;
}
