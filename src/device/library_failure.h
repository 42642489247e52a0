// LaunchFailure::code for a failed call of a vendor's library.
#pragma once

namespace sluice {

// Not a cudaError_t. A library call failed and logged the reason; the device may still be usable.
constexpr int kFailedInLibrary = -1;

}  // namespace sluice
