// NCCL's functions (as declared in nccl_library.h) between emulated devices. Exchanges run on the
// devices' streams and wait there for the other ranks; the calls of a group form one exchange; an
// exchange waits for a lost rank until it is aborted.
//
// Stricter than NCCL: if ranks call different operations or pass different counts, an asynchronous
// error is reported; NCCL would hang or corrupt memory.
#pragma once

#include "parallel/nccl_library.h"

namespace sluice {

// Returns the functions. Streams are EmulatedQueues. Every call returns immediately; a communicator
// is in progress until all ranks of its clique have joined. Thread safety: any thread, as in NCCL.
const nccl::Functions& EmulatedNccl();

namespace emulated_nccl {

// For tests: the fault of the next exchange that the rank (of any clique) runs on its stream.
enum class Fault {
  kNone,
  kHang,        // the rank never takes part
  kAsyncError,  // the clique's communicators fail, as after a network error
  kWrongCount,  // the rank passes a count that is one byte too large
};
void Inject(Fault fault, int rank);

}  // namespace emulated_nccl
}  // namespace sluice
