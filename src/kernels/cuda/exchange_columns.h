// Gathers columns among devices that address each other's memory: each rank stores its columns of
// all rows into the array of every rank, raises a flag there, and waits for the flags of the
// others. Does in one launch what an all-gather and JoinColumns do together. Has no large includes.
#pragma once

#include <stdint.h>

#include "device/stream_handle.h"

namespace sluice::device {

// Maximum number of ranks of an exchange.
constexpr int kMostExchanging = 32;

// The data that a rank's exchanges need between launches, in the rank's own device memory; all
// zeros at first.
struct ExchangeState {
  static constexpr int kFlagWords = 8;  // each flag has a separate sector of memory

  uint32_t number;       // number of the last exchange, the same on all ranks
  uint32_t arrived;      // blocks of the current launch that have stored their rows
  uint32_t has_stopped;  // whether an exchange was aborted; later exchanges do nothing
  uint32_t unused[5];
  // Written by the other ranks, one entry per rank: the last exchange for which that rank was ready
  // to receive, and the last exchange whose columns it has stored here.
  uint32_t ready[kMostExchanging][kFlagWords];
  uint32_t stored[kMostExchanging][kFlagWords];
};

// all[r][places[i], begin .. begin + own_bytes) = own[i, :] for every rank r, or only for `root`.
// Sizes are bytes. All ranks launch the same exchanges in the same order, with the same root and
// waits_first.
//
// A rank may store into the arrays as soon as it launches. With `waits_first`, every rank first
// waits until all others have launched this exchange. This is needed unless every rank had finished
// using its array before it launched the previous exchange.
struct ExchangeColumnsArgs {
  const void* own;          // [rows, own_bytes]
  const int32_t* places;    // [rows]: rows of `all`; negative: not stored. null: 0, 1, ...
  int64_t rows;             // number of rows of `own`; the same in all ranks, except with `places`
  int64_t own_bytes;        // width of this rank's columns
  int64_t begin;            // where this rank's columns begin in a row of `all`
  int64_t row_bytes;        // width of a row of `all`
  int32_t rank, num_ranks;  // num_ranks <= kMostExchanging
  int32_t root;             // the only rank that receives; -1: all do
  bool waits_first;
  const uint32_t* stop;        // in the host's memory: a value other than 0 ends all waiting
  void* all[kMostExchanging];  // the array of each rank, which all ranks write
  ExchangeState* states[kMostExchanging];  // by rank
};

using ExchangeColumns = void (*)(const StreamHandle&, const ExchangeColumnsArgs&);

}  // namespace sluice::device

namespace sluice::emulated {
void LaunchExchangeColumns(const StreamHandle& stream, const device::ExchangeColumnsArgs& args);
}
namespace sluice::cuda {
void LaunchExchangeColumns(const StreamHandle& stream, const device::ExchangeColumnsArgs& args);
}
namespace sluice::hip {
void LaunchExchangeColumns(const StreamHandle& stream, const device::ExchangeColumnsArgs& args);
}
