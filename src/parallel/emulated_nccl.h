// NCCL's functions between emulated devices, as nccl_library.h declares them: exchanges run on the
// devices' streams and wait there for the other ranks, calls in a group are one exchange, a lost
// rank is waited for without end unless somebody aborts.
//
// Stricter than NCCL: ranks that call different operations, or with different counts, are told of
// an asynchronous error, where NCCL would hang or mix up memory.
#pragma once

#include "parallel/nccl_library.h"

namespace sluice {

// Streams are EmulatedQueues. Every call returns at once; a rank joins its clique when the others
// do, and its communicator is in progress until then. Thread safety: as NCCL, any thread.
const nccl::Functions& EmulatedNccl();

namespace emulated_nccl {

// For tests: what befalls the next exchange that the rank of any clique has on its stream.
enum class Fault {
  kNone,
  kHang,        // it never takes part
  kAsyncError,  // the clique's communicators fail, as after an error of the network
  kWrongCount,  // it comes with one byte too many
};
void Inject(Fault fault, int rank);

}  // namespace emulated_nccl
}  // namespace sluice
