// A stream of the stand-in of HIP's runtime.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "device/emulated_queue.h"

namespace fake_hip {

struct Work {
  std::function<void()> run;
  bool is_kernel;
};
struct Graph {
  std::vector<Work> work;
};
struct Stream {
  int device;
  sluice::EmulatedQueue queue = {};
  std::optional<Graph> recording = {};
  bool is_invalid = false;  // what it records cannot be recorded
};

}  // namespace fake_hip
