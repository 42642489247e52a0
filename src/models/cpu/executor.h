// Runs programs on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "models/cpu/tensor_ranks.h"
#include "models/encoder/encoder_weights.h"
#include "models/kv_cache.h"
#include "models/lora_slots.h"
#include "models/model.h"
#include "models/program/buffers.h"
#include "models/program/program.h"
#include "parallel/communicator.h"
#include "tensor/buffer.h"

namespace sluice {

// Observes the inputs of linear layers and of the cache, for calibration.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Called before `x`, F32 or BF16, is multiplied by `matrix`.
  virtual void OnInputs(const kernels::PackedMatrix& matrix, const kernels::Activations& x) = 0;
  // Called with the rows that are written to the cache: F32, after RoPE.
  virtual void OnKeysAndValues(const kernels::Activations& keys,
                               const kernels::Activations& values) = 0;
};

struct TowerStep;

// Inputs and results of a run of a program.
struct CpuStep {
  ThreadPool& pool;
  const StepInput& input;
  KvCache* cache = nullptr;
  float* results = nullptr;          // receives the results of the step
  LoraStep* lora = nullptr;          // null: no sequence of the step has an adapter
  StepObserver* observer = nullptr;  // may be null
  // Index of the copy of the buffers, if steps in flight have separate copies.
  int64_t copy = 0;
  const TowerStep* tower = nullptr;  // only for image towers
};

// Objects that a program needs in addition to its buffers. Ownership: all members outlive the
// executor.
struct CpuSurroundings {
  RankPlace place = {};
  Communicator* all = nullptr;                    // the ranks of all stages; null: a single rank
  TensorRanks* ranks = nullptr;                   // null: this rank computes whole layers
  const ClassifierWeights* classifier = nullptr;  // only for encoders
};

// Allocates nothing after construction. Thread safety: one thread at a time. Ownership: owns the
// program and the memory of its buffers.
class CpuExecutor {
 public:
  static Result<CpuExecutor> Create(program::Program program, const ModelOptions& options,
                                    const CpuSurroundings& surroundings);

  // Runs operators [begin, end) on the first `rows` rows. Returns the number of remaining rows.
  int64_t Run(int32_t begin, int32_t end, int64_t rows, const CpuStep& step) const;
  int64_t RunBody(const CpuStep& step) const {
    return Run(0, program_.results_begin, std::ssize(step.input.tokens), step);
  }
  void MakeResults(int64_t rows, const CpuStep& step) const {
    Run(program_.results_begin, static_cast<int32_t>(program_.ops.size()), rows, step);
  }

  const program::Program& program() const { return program_; }
  // Returns the memory of one copy of a buffer.
  std::byte* BufferAt(program::BufferId buffer, int64_t copy = 0) const;

 private:
  friend class CpuWalk;
  CpuExecutor(program::Program program, const ModelOptions& options,
              const CpuSurroundings& surroundings);

  program::Program program_;
  program::BufferPlan plan_;
  ModelOptions options_;
  CpuSurroundings surroundings_;
  Buffer memory_;
  std::vector<OpTimes::Count*> counts_;  // one entry per operator; empty: time is not measured
};

}  // namespace sluice
