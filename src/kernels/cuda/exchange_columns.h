// Gathers columns among devices that address each other's memory: each rank stores its columns of
// all rows into the array of every rank, raises a flag there, and waits for the flags of the
// others. The counterpart of an all-gather and JoinColumns in one launch. Free of large includes.
#pragma once

#include <stdint.h>

#include "device/stream_handle.h"

namespace sluice::device {

// Maximum number of ranks that exchange.
constexpr int kMostExchanging = 32;

// What a rank's exchanges need between launches, in its own device memory; all zeros at first.
struct ExchangeState {
  static constexpr int kFlagWords = 8;  // a flag has a sector of its own

  uint32_t number;       // of the last exchange, the same at all ranks
  uint32_t arrived;      // blocks of the current launch that have stored their rows
  uint32_t has_stopped;  // whether an exchange was given up: later ones do nothing
  uint32_t unused[5];
  // Written by the other ranks, by rank: the last exchange for which that rank was ready to
  // receive, and the last one whose columns it has stored here.
  uint32_t ready[kMostExchanging][kFlagWords];
  uint32_t stored[kMostExchanging][kFlagWords];
};

// all[r][places[i], begin .. begin + own_bytes) = own[i, :] for every rank r, or only for `root`.
// Sizes are bytes. All ranks launch the same exchanges in the same order, with the same rows, root
// and waits_first.
//
// A rank may store into an array as soon as it launches. So `waits_first` is needed unless every
// rank has finished with its array before it launched the exchange before this one: every rank then
// first waits until all others have launched this exchange.
struct ExchangeColumnsArgs {
  const void* own;          // [rows, own_bytes]
  const int32_t* places;    // [rows]: rows of `all`; negative: not stored. null: 0, 1, ...
  int64_t rows;             // of `own`; may differ between the ranks if there are places
  int64_t own_bytes;        // of this rank's columns
  int64_t begin;            // of this rank's columns in a row of `all`
  int64_t row_bytes;        // of a row of `all`
  int32_t rank, num_ranks;  // num_ranks <= kMostExchanging
  int32_t root;             // the only rank that receives; -1: all do
  bool waits_first;
  const uint32_t* stop;                    // in the host's memory: not 0 ends all waiting
  void* all[kMostExchanging];              // by rank: its array, written by all ranks
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
