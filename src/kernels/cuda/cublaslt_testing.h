// The interface between tests and the fake cuBLASLt (tests/fake_cublaslt), a shared library with
// the functions of the real one, for streams that are EmulatedQueues. The fake computes plain
// products when the queue is synchronized, and refuses incomplete or inconsistent descriptors.
#pragma once

#include <cstdint>

namespace sluice::device {

struct FakeCublasLtState {
  // Set by tests.
  int64_t version = 130002;
  // Compute capability of the device. The fake refuses products that the library's documentation
  // does not list for it. `outer_vectors_on_10`: whether products with row scales are accepted on
  // 10.x anyway.
  int compute_capability = 90;
  bool outer_vectors_on_10 = false;
  bool refuse_all = false;     // whether to propose no algorithm for any product
  bool refuse_scales = false;  // whether to propose no algorithm for products with row scales
  bool refuse_f4 = false;      // whether to propose no algorithm for products of E2M1
  uint64_t refuse_rows = 0;    // proposes no algorithm for products with this number of weight rows
  bool fail = false;           // whether products fail when enqueued
  // A product takes kFakeSeconds times one of these factors: without scales, with row scales, or
  // with group scales. fast_slowdown multiplies the factor for fast accumulation.
  double plain_slowdown = 1, rows_slowdown = 1, groups_slowdown = 1, fast_slowdown = 1;
  // Counted by the fake.
  int64_t num_searches = 0;
  int64_t num_checks = 0;
  int64_t num_products = 0;       // enqueued
  int64_t num_records = 0;        // number of records that were created and not yet destroyed
  int64_t num_created = 0;        // records created
  int64_t num_other_weights = 0;  // number of products with other weights than the previous product
  int last_algorithm = -1;        // of the last product enqueued
  double seconds = 0;             // time that products have taken so far
  const char* complaint = "";     // reason for the most recent refusal of a call
};

// The fake's algorithms, in the order in which it proposes them. kFakeFast is the fastest with a
// workspace below 64 MiB, and accepts only even m.
constexpr int kFakeSlow = 0, kFakeFast = 1, kFakeLarge = 2;
constexpr double kFakeSeconds[] = {3e-6, 1e-6, 0.5e-6};
constexpr uint64_t kFakeWorkspace[] = {0, 64 << 10, 64 << 20};

// The type of the fake's `extern "C"` function kFakeCublasLtName, which returns the fake's state.
using FakeCublasLtFunction = FakeCublasLtState* (*)();
constexpr const char* kFakeCublasLtName = "FakeCublasLt";

}  // namespace sluice::device
