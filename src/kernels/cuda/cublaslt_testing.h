// What tests tell, and ask, the stand-in for cuBLASLt (tests/fake_cublaslt): a shared library with
// the real one's functions, for streams that are EmulatedQueues. It computes plain products when
// the queue is waited for, and refuses whatever is not described completely and consistently.
#pragma once

#include <cstdint>

namespace sluice::device {

struct FakeCublasLtState {
  // Told.
  int64_t version = 130002;
  bool refuse_all = false;     // no algorithm for anything
  bool refuse_scales = false;  // none for products with scales of rows
  bool refuse_f4 = false;      // none for products of E2M1
  uint64_t refuse_rows = 0;    // none for products with so many rows of weights
  bool fail = false;           // products fail when they are enqueued
  // How many times longer than kFakeSeconds products take: those without scales of rows or groups,
  // with scales of rows, with those of groups; and what fast accumulation multiplies that by.
  double plain_slowdown = 1, rows_slowdown = 1, groups_slowdown = 1, fast_slowdown = 1;
  // Counted.
  int64_t num_searches = 0;
  int64_t num_checks = 0;
  int64_t num_products = 0;  // enqueued
  int64_t num_records = 0;   // that were made and not yet destroyed
  int64_t num_other_weights =
      0;                       // products whose weights lie elsewhere than those of the one before
  int last_algorithm = -1;     // of the last product enqueued
  double seconds = 0;          // that products took so far, as they ran
  const char* complaint = "";  // about the last call that was refused
};

// The stand-in's algorithms, in the order in which it proposes them. The middle one is the fastest
// that fits a workspace below 64 MiB, and takes even m alone.
constexpr int kFakeSlow = 0, kFakeFast = 1, kFakeLarge = 2;
constexpr double kFakeSeconds[] = {3e-6, 1e-6, 0.5e-6};
constexpr uint64_t kFakeWorkspace[] = {0, 64 << 10, 64 << 20};

// Its function of this name, `extern "C"`, returns the state.
using FakeCublasLtFunction = FakeCublasLtState* (*)();
constexpr const char* kFakeCublasLtName = "FakeCublasLt";

}  // namespace sluice::device
