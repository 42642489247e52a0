// Runs programs on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device/array_cutter.h"
#include "device/device.h"
#include "kernels/cuda/device_linear.h"
#include "models/device/device_lora.h"
#include "models/device/device_ranks.h"
#include "models/device/device_step_view.h"
#include "models/device/device_weights.h"
#include "models/kv_cache.h"
#include "models/program/buffers.h"
#include "models/program/program.h"

namespace sluice {

// The memory of a program's buffers on a device.
struct DevicePlan : program::BufferPlan {
  std::vector<ArrayGap> gaps;

  // `keeps_apart`: see ArrayCutter; does not change the planned size.
  static DevicePlan For(const program::Program& program, bool keeps_apart);
};

// Adds the buffer "step_inputs" for a step's inputs, which shares memory with no other.
void AddStepInputs(program::Program& program, int64_t bytes);

// The buffer of images' rows (StepInput::stored_image_rows), F32 [places, image_row_width], which
// shares memory with no other.
inline constexpr std::string_view kImageRows = "image_rows";
void AddImageRows(program::Program& program, int64_t bytes);

// The memory of exchanges between devices that address each other's memory (PeerExchange), which
// shares memory with no other buffer, and the bytes of the largest array that they gather: arrays
// of up to kMostExchangedRows rows, and for experts of as many rows of the step.
inline constexpr std::string_view kExchange = "exchange";
inline constexpr int64_t kMostExchangedRows = 512;
int64_t ExchangedBytes(const program::Program& program);
void AddExchange(program::Program& program);

// The buffer of Model::kept_rows(), which shares memory with no other.
inline constexpr std::string_view kKeptRows = "kept_rows";
void AddKeptRows(program::Program& program, int64_t bytes);

// Arguments of a run of a program.
struct DeviceStep {
  const DeviceStepView* inputs = nullptr;
  const KvCache* cache = nullptr;
  int64_t rows = 0;
  int64_t wanted = 0;
  std::span<const int32_t> adapters = {};  // slots of its adapters; -1 for rows without
  float* results = nullptr;                // on the host, for CopyResults
  float* image_rows = nullptr;             // for StoreImage, rows image_stride elements apart
  int64_t image_stride = 0;
  DeviceHidden hidden = {};  // for TakeHidden
  bool takes_target = true;
  bool is_recorded = false;
};

// Allocates nothing after construction. Thread safety: one thread at a time. Ownership: owns the
// program; everything else outlives it.
class DeviceExecutor {
 public:
  struct Parts {
    const device::DeviceKernels& kernels;
    DeviceStream& stream;
    device::DeviceLinear& linear;
    DeviceRanks* ranks = nullptr;     // null: a single rank
    DeviceLoraSlots* lora = nullptr;  // null: no adapters are served
    void* expert_rows = nullptr;      // page-locked: number of rows per expert in a step
    RankPlace place = {};
    DecoderSpec whole = {};       // the whole model, if there are several ranks
    int64_t image_row_width = 0;  // DecoderSpec::ImageRowWidth, if the model takes images
    OpTimes* op_times = nullptr;  // ModelOptions::op_times
  };

  // `workspace`: plan.total_bytes bytes. Does not access weights to which the program points.
  DeviceExecutor(program::Program program, DeviceProgramWeights weights, DevicePlan plan,
                 std::byte* workspace, const Parts& parts);

  // Enqueues the operators. Returns the number of remaining rows. Throws if enqueueing fails.
  int64_t Run(const DeviceStep& step);

  // Chooses kernels for products by measuring, where there is a choice.
  Status Tune();

  const program::Program& program() const { return program_; }
  std::byte* BufferAt(program::BufferId buffer) const {
    return workspace_ + plan_.offsets[static_cast<size_t>(buffer)];
  }
  std::byte* BufferAt(std::string_view name) const {
    return BufferAt(program::FindBuffer(program_, name));
  }

 private:
  friend class DeviceWalk;

  program::Program program_;
  DeviceProgramWeights weights_;
  DevicePlan plan_;
  std::byte* workspace_;
  Parts parts_;
  std::vector<std::byte*> addresses_;    // by buffer, for the step being enqueued
  std::vector<std::byte*> homes_;        // the same, but for rows that a gather left elsewhere
  std::vector<bool> moved_;              // by buffer, whether its rows have moved (KeepRows)
  std::vector<OpTimes::Count*> counts_;  // by operator; empty: not counted
  // Gathers whose results are read before the next gather alone.
  std::set<const program::Gather*> fleeting_;
};

// Sets sizes of buffers that depend on the weights, which a builder does not know: scratch memory
// of products, and inputs in a matrix's order.
void SizeProductBuffers(program::Program& program, const DeviceProgramWeights& weights,
                        const DeviceInfo& device, const device::DeviceLinearOptions& options);

}  // namespace sluice
