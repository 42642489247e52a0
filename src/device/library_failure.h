// LaunchFailure::code of a failed call of a vendor's library.
#pragma once

namespace sluice {

// Not a cudaError_t: a library call failed, and the log says why; the device may still be usable.
constexpr int kFailedInLibrary = -1;

}  // namespace sluice
