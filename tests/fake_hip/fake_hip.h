// A fake HIP runtime, a library that the program opens instead of AMD's. It simulates a machine of
// AMD GPUs whose memory is host memory. It reads the code objects that the program loads and checks
// that they are for its GPU. It runs their kernels with the emulator, from the same source, in
// waves of 64 lanes. Work runs when a caller waits for it. The library also replaces RCCL
// (SLUICE_RCCL), by the exchanges of emulated devices, and hipBLASLt (SLUICE_HIPBLASLT), by plain
// products.
//
// SLUICE_FAKE_HIP: "gfx950" (the default) or "gfx942", the GPUs' architecture, followed by "x4" for
// 4 GPUs instead of 2; "none": no GPU. SLUICE_FAKE_HIP_ORDER: Machine::order.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fake_hip {

struct Machine {
  int num_devices = 2;
  int64_t total_bytes = int64_t{8} << 30;  // memory of each device
  std::string architecture = "gfx950";
  // The order of a kernel's threads (emulator.h): "forward", "reverse", or the seed of a random
  // one.
  std::string order = "forward";
  // The error of a function's next call, keyed by the function's name in HIP.
  std::map<std::string, int> next;
  // Error of every later call, as after an illegal address.
  int sticky = 0;

  // For hipBLASLt: its version, whether it refuses all products for lack of an algorithm, and the
  // status that the next product and the next handle return.
  int products_version = 100200;
  bool refuses_products = false;
  int next_product = 0;
  int next_handle = 0;

  int64_t num_alive = 0;       // buffers, streams, events and graphs
  int64_t num_modules = 0;     // modules loaded
  int64_t num_kernels = 0;     // kernels that ran
  int64_t num_replayed = 0;    // kernels that ran in graphs
  int64_t num_products = 0;    // hipBLASLt products that ran
  int64_t num_records = 0;     // hipBLASLt records created and not yet destroyed
  const char* complaint = "";  // why hipBLASLt last refused a call
};

// The type of the library's function "fake_hip_machine", for tests that also open the library.
using MachineFunction = Machine* (*)();

}  // namespace fake_hip
