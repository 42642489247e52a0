// What LaunchFailure::code says of a vendor's library.
#pragma once

namespace sluice {

// No cudaError_t: a library failed, for a reason that the log tells; the device may be as well as
// before.
constexpr int kFailedInLibrary = -1;

}  // namespace sluice
