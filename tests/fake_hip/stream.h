// A stream of the fake HIP runtime.
#pragma once

#include <functional>
#include <optional>
#include <utility>
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
  bool is_invalid = false;  // whether an operation could not be recorded
};

// Adds work to the stream's queue, or to the graph that it records.
inline void Enqueue(Stream* stream, std::function<void()> run, bool is_kernel) {
  if (stream->recording)
    stream->recording->work.push_back({std::move(run), is_kernel});
  else
    stream->queue.Enqueue(std::move(run));
}

}  // namespace fake_hip
