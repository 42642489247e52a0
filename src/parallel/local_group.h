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
  // Whether ranks spin for a while before they sleep. Do not spin if the ranks have more threads
  // than there are CPUs: a spinning rank keeps the rank it waits for from running.
  bool spin = true;
};

// One communicator per rank; the group is freed with the last of them.
std::vector<std::unique_ptr<Communicator>> MakeLocalGroup(const LocalGroupOptions& options);

}  // namespace sluice
