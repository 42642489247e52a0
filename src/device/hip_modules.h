// The HIP kernels in the program: Clang puts each file's machine code, for all architectures, into
// its object file, and registers it at start. This file implements the registry; in a program
// linked against HIP's runtime, the runtime does this.
#pragma once

#include <string>

#include "base/result.h"
#include "device/hip_library.h"

namespace sluice {

// Loads all kernels onto the device, so that none is loaded at its first launch. `architecture`:
// "gfx950". Does nothing if they are loaded. kUnsupported: the program has no code for the
// architecture. Thread safe.
Status LoadHipKernels(const HipLibrary& library, int ordinal, const std::string& architecture);

}  // namespace sluice
