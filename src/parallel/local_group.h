// Ranks as threads of one process: they read each other's memory.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace sluice {

struct LocalGroupOptions {
  int size = 1;
  // How long an operation waits for the other ranks.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  // Whether ranks spin for a while before they sleep. Set it to false if the ranks have more
  // threads than there are CPUs, because a spinning rank would take a CPU from the rank for which
  // it waits.
  bool spin = true;
};

// Returns one communicator per rank. The group is freed with the last of them.
std::vector<std::unique_ptr<Communicator>> MakeLocalGroup(const LocalGroupOptions& options);

}  // namespace sluice
