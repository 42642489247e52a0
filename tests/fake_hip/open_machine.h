// Opens the fake HIP runtime and hipBLASLt, for tests that also change the simulated machine.
#pragma once

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>

#include "fake_hip/fake_hip.h"

namespace fake_hip {

// Returns the machine of the fake library, which the program opens instead of AMD's. Ends the
// program if the library cannot be opened.
inline Machine& TheMachine() {
  static Machine& machine = *[] {
    setenv("SLUICE_HIP_RUNTIME", SLUICE_FAKE_HIP_LIBRARY, 1);
    setenv("SLUICE_HIPBLASLT", SLUICE_FAKE_HIP_LIBRARY, 1);
    void* library = dlopen(SLUICE_FAKE_HIP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      fprintf(stderr, "%s\n", dlerror());
      abort();
    }
    return reinterpret_cast<MachineFunction>(dlsym(library, "fake_hip_machine"))();
  }();
  return machine;
}

}  // namespace fake_hip
