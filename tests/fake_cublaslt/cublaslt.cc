// A fake cuBLASLt that computes on the CPU; see kernels/cuda/cublaslt_testing.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "device/emulated_queue.h"
#include "kernels/cuda/cublaslt_library.h"
#include "kernels/cuda/cublaslt_testing.h"
#include "kernels/cuda/nvf4_scales.h"
#include "tensor/bfloat16.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice::device::cublaslt {

struct HandleRecord {};
struct LayoutRecord {
  int type;
  uint64_t rows, cols;
  int64_t ld;
};
// Attributes as bytes, keyed by number.
using Attributes = std::map<int, std::vector<unsigned char>>;
struct OperationRecord {
  int compute_type, scale_type;
  Attributes attributes;
};
struct PreferenceRecord {
  Attributes attributes;
};

}  // namespace sluice::device::cublaslt

namespace {

using sluice::EmulatedQueue;
using namespace sluice::device;            // NOLINT
using namespace sluice::device::cublaslt;  // NOLINT

constexpr uint64_t kMagic = 0x736c756963650000;
constexpr int kNumAlgorithms = 3;

FakeCublasLtState state;

int Refuse(const char* complaint, int status = kInvalidValue) {
  state.complaint = complaint;
  return status;
}

template <typename T>
T Get(const Attributes& attributes, int number, T otherwise) {
  const auto found = attributes.find(number);
  if (found == attributes.end()) return otherwise;
  T value;
  memcpy(&value, found->second.data(), sizeof(value));
  return value;
}

// Stores an attribute if its number is known and its size is right.
int SetAttribute(Attributes& attributes, const std::map<int, size_t>& known, int number,
                 const void* value, size_t bytes) {
  const auto found = known.find(number);
  if (found == known.end()) return Refuse("an unknown attribute");
  if (value == nullptr || bytes != found->second) return Refuse("an attribute of a wrong size");
  const auto* data = static_cast<const unsigned char*>(value);
  attributes[number].assign(data, data + bytes);
  return kSuccess;
}

template <typename Record>
int Create(Record** record, Record value) {
  if (record == nullptr) return Refuse("no place for a record");
  *record = new Record(std::move(value));
  ++state.num_records;
  ++state.num_created;
  return kSuccess;
}
template <typename Record>
int Destroy(Record* record) {
  delete record;
  --state.num_records;
  return kSuccess;
}

int64_t SizeOf(int type) {
  return type == kTypeF32 ? 4 : type == kTypeBF16 ? 2 : 1;
}

float Load(const void* data, int type, int64_t index) {
  if (type == kTypeBF16) return ToFloat(static_cast<const sluice::BFloat16*>(data)[index]);
  if (type == kTypeE4M3) return ToFloat(static_cast<const sluice::Float8E4M3*>(data)[index]);
  if (type == kTypeE2M1) {
    const uint8_t byte = static_cast<const uint8_t*>(data)[index / 2];
    return sluice::Float4ToFloat(index % 2 == 0 ? byte & 15 : byte >> 4);
  }
  return static_cast<const float*>(data)[index];
}
void Store(void* data, int type, int64_t index, float value) {
  if (type == kTypeBF16)
    static_cast<sluice::BFloat16*>(data)[index] = sluice::ToBFloat16(value);
  else
    static_cast<float*>(data)[index] = value;
}

// Returns the columns of a matrix, one after another.
std::vector<double> Columns(const void* data, const LayoutRecord& layout) {
  std::vector<double> values;
  values.reserve(layout.rows * layout.cols);
  for (int64_t column = 0; column < static_cast<int64_t>(layout.cols); ++column) {
    for (int64_t row = 0; row < static_cast<int64_t>(layout.rows); ++row)
      values.push_back(static_cast<double>(Load(data, layout.type, column * layout.ld + row)));
  }
  return values;
}

// Returns the columns of E2M1 numbers with scales of groups (the scales' signs are ignored). The
// scales of padding rows and groups must be zero; otherwise all results are NaN.
std::vector<double> ScaledColumns(const void* data, const LayoutRecord& layout,
                                  const void* group_scales) {
  std::vector<double> values = Columns(data, layout);
  if (group_scales == nullptr) return values;
  const auto columns = static_cast<int64_t>(layout.cols), rows = static_cast<int64_t>(layout.rows);
  const int64_t groups = rows / kNvF4Group;
  const auto* bytes = static_cast<const uint8_t*>(group_scales);
  const auto scale_at = [&](int64_t column, int64_t group) {
    const int64_t at = NvF4ScaleRow(column, groups) + NvF4ScaleGroup(group);
    return static_cast<double>(ToFloat(sluice::Float8E4M3{static_cast<uint8_t>(bytes[at] & 0x7F)}));
  };
  for (int64_t i = 0; i < columns * rows; ++i)
    values[static_cast<size_t>(i)] *= scale_at(i / rows, i % rows / kNvF4Group);
  for (int64_t column = 0; column % kNvF4TileRows != 0 || column < columns; ++column) {
    for (int64_t group = 0; group % kNvF4TileGroups != 0 || group < groups; ++group) {
      if ((column >= columns || group >= groups) && scale_at(column, group) != 0)
        std::fill(values.begin(), values.end(), std::nan(""));
    }
  }
  return values;
}

double Dot(const double* a, const double* b, int64_t count) {
  double sums[8] = {};  // so that the compiler may use vectors
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

// A product as described by its descriptors; all layouts are column-major.
struct Product {
  int64_t m, n, k;  // in the library's notation: D is m x n
  LayoutRecord a, b, d;
  const float* scale_a;  // row scales
  const float* scale_b;
  const void* groups_a;  // E4M3 group scales
  const void* groups_b;
  bool is_fast;
};

double SlowdownOf(const Product& product) {
  double slowdown = product.groups_a != nullptr  ? state.groups_slowdown
                    : product.scale_a != nullptr ? state.rows_slowdown
                                                 : state.plain_slowdown;
  if (product.is_fast) slowdown *= state.fast_slowdown;
  return slowdown;
}

bool IsAligned(const void* address, uint64_t alignment) {
  return address != nullptr && reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

int Examine(Operation operation, Layout a, Layout b, Layout c, Layout d, Product& product) {
  if (operation == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr)
    return Refuse("a record is missing");
  const Attributes& attributes = operation->attributes;
  if (operation->compute_type != kComputeF32 || operation->scale_type != kTypeF32)
    return Refuse("sums and scales other than F32");
  if (Get(attributes, kTransposeA, kPlain) != kTransposed ||
      Get(attributes, kTransposeB, kPlain) != kPlain)
    return Refuse("not the transpose of A times B");
  if (a->rows != b->rows || a->cols != d->rows || b->cols != d->cols)
    return Refuse("shapes that do not meet");
  if (c->type != d->type || c->rows != d->rows || c->cols != d->cols || c->ld != d->ld)
    return Refuse("C unlike D");
  for (const Layout layout : {a, b, d})
    if (layout->ld < static_cast<int64_t>(layout->rows) || layout->rows == 0 || layout->cols == 0)
      return Refuse("a leading dimension shorter than a column, or no columns");
  const bool is_f8 = a->type == kTypeE4M3;
  const bool is_f4 = a->type == kTypeE2M1;
  if (a->type != b->type || (a->type != kTypeBF16 && !is_f8 && !is_f4))
    return Refuse("types of A and B");
  if (d->type != kTypeBF16 && d->type != kTypeF32) return Refuse("type of D");
  if (is_f8 && (a->rows % 16 != 0 || d->rows % 16 != 0 || a->ld % 16 != 0 || b->ld % 16 != 0 ||
                d->ld * SizeOf(d->type) % 16 != 0))
    return Refuse("E4M3 with dimensions that are no multiples of 16");
  if (is_f4 && (a->rows % 32 != 0 || d->rows % 16 != 0 || a->ld % 32 != 0 || b->ld % 32 != 0 ||
                d->ld * SizeOf(d->type) % 16 != 0))
    return Refuse("E2M1 with rows that are no multiples of 16 bytes");
  // From the tables of cublasLtMatmul: BF16 needs 8.0, FP8 needs 8.9, FP4 with scales of 16 needs
  // 10.0.
  const int needed = is_f4 ? 100 : is_f8 ? 89 : 80;
  if (state.compute_capability < needed)
    return Refuse("numbers that the device's tensor cores do not multiply", kArchMismatch);
  if (!is_f8 && Get(attributes, kFastAccumulation, int8_t{0}) != 0)
    return Refuse("fast accumulation of other numbers than E4M3");

  const float* none = nullptr;
  product = {.m = static_cast<int64_t>(d->rows),
             .n = static_cast<int64_t>(d->cols),
             .k = static_cast<int64_t>(a->rows),
             .a = *a,
             .b = *b,
             .d = *d,
             .scale_a = Get(attributes, kScalePointerA, none),
             .scale_b = Get(attributes, kScalePointerB, none),
             .groups_a = nullptr,
             .groups_b = nullptr,
             .is_fast = Get(attributes, kFastAccumulation, int8_t{0}) != 0};
  const int32_t mode_a = Get(attributes, kScaleModeA, kScaleScalar);
  const int32_t mode_b = Get(attributes, kScaleModeB, kScaleScalar);
  if (mode_a != mode_b) return Refuse("scale modes that differ", kNotSupported);
  if (is_f4 != (mode_a == kScaleGroups16))
    return Refuse("E2M1 without scales of groups, or others with them", kNotSupported);
  if (is_f4) {
    product.groups_a = std::exchange(product.scale_a, nullptr);
    product.groups_b = std::exchange(product.scale_b, nullptr);
    if (!IsAligned(product.groups_a, 16) || !IsAligned(product.groups_b, 16))
      return Refuse("scales of groups that are missing or not aligned");
    if (state.version < kGroups16Version || state.refuse_f4) return Refuse("E2M1", kNotSupported);
  }
  if ((product.scale_a != nullptr) != (mode_a == kScaleOuterVector) ||
      (product.scale_b != nullptr) != (mode_b == kScaleOuterVector))
    return Refuse("a scale mode without scales, or the other way round");
  if (product.scale_a != nullptr && (!is_f8 || state.refuse_scales))
    return Refuse("scales", kNotSupported);
  // Outer vectors need 9.0, and cuBLAS 12.9 or later.
  const bool has_vectors =
      state.compute_capability == 90 ||
      (state.compute_capability / 10 == 10 && state.outer_vectors_on_10);
  if (product.scale_a != nullptr && (!has_vectors || state.version < kOuterVectorVersion))
    return Refuse("scales of rows on this device", kNotSupported);
  if (state.refuse_all || d->rows == state.refuse_rows)
    return Refuse("everything, as told", kNotSupported);
  return kSuccess;
}

int ExamineAlgorithm(const Product& product, const Algorithm* algorithm) {
  if (algorithm == nullptr || algorithm->data[0] != kMagic ||
      algorithm->data[1] >= static_cast<uint64_t>(kNumAlgorithms))
    return Refuse("not an algorithm");
  if (algorithm->data[2] != static_cast<uint64_t>(product.m) ||
      algorithm->data[3] != static_cast<uint64_t>(product.k))
    return Refuse("an algorithm of another product");
  if (algorithm->data[1] == kFakeFast && product.n % 2 != 0)
    return Refuse("an algorithm for even numbers alone");
  return kSuccess;
}

}  // namespace

extern "C" {

FakeCublasLtState* FakeCublasLt() {
  return &state;
}

size_t cublasLtGetVersion() {
  return static_cast<size_t>(state.version);
}
const char* cublasLtGetStatusName(int status) {
  return status == kSuccess ? "success" : "fake failure";
}

int cublasLtCreate(Handle* handle) {
  return Create(handle, HandleRecord{});
}
int cublasLtDestroy(Handle handle) {
  return Destroy(handle);
}

int cublasLtMatrixLayoutCreate(Layout* layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  return Create(layout, LayoutRecord{type, rows, cols, ld});
}
int cublasLtMatrixLayoutDestroy(Layout layout) {
  return Destroy(layout);
}

int cublasLtMatmulDescCreate(Operation* operation, int compute_type, int scale_type) {
  return Create(operation, OperationRecord{compute_type, scale_type, {}});
}
int cublasLtMatmulDescDestroy(Operation operation) {
  return Destroy(operation);
}
int cublasLtMatmulDescSetAttribute(Operation operation, int number, const void* value,
                                   size_t bytes) {
  return SetAttribute(operation->attributes,
                      {{kTransposeA, 4},
                       {kTransposeB, 4},
                       {kScalePointerA, 8},
                       {kScalePointerB, 8},
                       {kFastAccumulation, 1},
                       {kScaleModeA, 4},
                       {kScaleModeB, 4}},
                      number, value, bytes);
}

int cublasLtMatmulPreferenceCreate(Preference* preference) {
  return Create(preference, PreferenceRecord{});
}
int cublasLtMatmulPreferenceDestroy(Preference preference) {
  return Destroy(preference);
}
int cublasLtMatmulPreferenceSetAttribute(Preference preference, int number, const void* value,
                                         size_t bytes) {
  return SetAttribute(
      preference->attributes,
      {{kMaxWorkspace, 8}, {kAlignmentA, 4}, {kAlignmentB, 4}, {kAlignmentC, 4}, {kAlignmentD, 4}},
      number, value, bytes);
}

int cublasLtMatmulAlgoGetHeuristic(Handle handle, Operation operation, Layout a, Layout b, Layout c,
                                   Layout d, Preference preference, int count, Heuristic* results,
                                   int* num_results) {
  ++state.num_searches;
  if (handle == nullptr || preference == nullptr || count <= 0) return Refuse("a bad search");
  Product product;
  if (const int status = Examine(operation, a, b, c, d, product); status != kSuccess) return status;
  uint32_t alignment = 256;
  for (const int number : {kAlignmentA, kAlignmentB, kAlignmentC, kAlignmentD})
    alignment = std::min(alignment, Get(preference->attributes, number, uint32_t{256}));
  *num_results = 0;
  for (int i = 0; i < kNumAlgorithms && *num_results < count; ++i) {
    const Algorithm algorithm{{kMagic, static_cast<uint64_t>(i), static_cast<uint64_t>(product.m),
                               static_cast<uint64_t>(product.k), alignment, 0, 0, 0}};
    if (ExamineAlgorithm(product, &algorithm) != kSuccess) continue;
    const bool fits = kFakeWorkspace[i] <= Get(preference->attributes, kMaxWorkspace, uint64_t{0});
    results[(*num_results)++] = {.algorithm = algorithm,
                                 .workspace_bytes = kFakeWorkspace[i],
                                 .state = fits ? kSuccess : kNotSupported,
                                 .waves = 1,
                                 .reserved = {}};
  }
  return kSuccess;
}

int cublasLtMatmulAlgoCheck(Handle handle, Operation operation, Layout a, Layout b, Layout c,
                            Layout d, const Algorithm* algorithm, Heuristic* result) {
  ++state.num_checks;
  if (handle == nullptr || result == nullptr) return Refuse("a bad check");
  Product product;
  if (const int status = Examine(operation, a, b, c, d, product); status != kSuccess) return status;
  if (const int status = ExamineAlgorithm(product, algorithm); status != kSuccess) return status;
  result->workspace_bytes = kFakeWorkspace[algorithm->data[1]];
  result->state = kSuccess;
  return kSuccess;
}

int cublasLtMatmul(Handle handle, Operation operation, const void* alpha, const void* a,
                   Layout a_layout, const void* b, Layout b_layout, const void* beta, const void* c,
                   Layout c_layout, void* d, Layout d_layout, const Algorithm* algorithm,
                   void* workspace, size_t workspace_bytes, void* stream) {
  if (handle == nullptr || stream == nullptr || alpha == nullptr || beta == nullptr)
    return Refuse("a bad product");
  Product product;
  if (const int status = Examine(operation, a_layout, b_layout, c_layout, d_layout, product);
      status != kSuccess)
    return status;
  if (const int status = ExamineAlgorithm(product, algorithm); status != kSuccess) return status;
  const uint64_t alignment = algorithm->data[4];
  if (!IsAligned(a, alignment) || !IsAligned(b, alignment) || !IsAligned(c, alignment) ||
      !IsAligned(d, alignment))
    return Refuse("an address less aligned than the algorithm needs");
  const auto index = static_cast<int>(algorithm->data[1]);
  const size_t used = kFakeWorkspace[index];
  if (used > workspace_bytes || (used > 0 && !IsAligned(workspace, 256)))
    return Refuse("a workspace that is too small or not aligned");
  constexpr int kExecutionFailed = 13;
  if (state.fail) return Refuse("as told", kExecutionFailed);

  const float factor = *static_cast<const float*>(alpha);
  if (*static_cast<const float*>(beta) != 0) return Refuse("a sum with C", kNotSupported);
  ++state.num_products;
  state.last_algorithm = index;
  static const void* last_weights = nullptr;
  state.num_other_weights += std::exchange(last_weights, a) != a;
  static_cast<EmulatedQueue*>(stream)->Enqueue([=] {
    if (used > 0) memset(workspace, 0xFF, used);
    const std::vector<double> a_values = ScaledColumns(a, product.a, product.groups_a);
    const std::vector<double> b_values = ScaledColumns(b, product.b, product.groups_b);
    for (int64_t j = 0; j < product.n; ++j) {
      for (int64_t i = 0; i < product.m; ++i) {
        double sum =
            Dot(a_values.data() + i * product.k, b_values.data() + j * product.k, product.k);
        if (product.scale_a != nullptr)
          sum *= static_cast<double>(product.scale_a[i]) * static_cast<double>(product.scale_b[j]);
        Store(d, product.d.type, j * product.d.ld + i, factor * static_cast<float>(sum));
      }
    }
    state.seconds += kFakeSeconds[index] * SlowdownOf(product);
  });
  return kSuccess;
}

}  // extern "C"
