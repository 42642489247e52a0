// Runs programs on a device.
#pragma once

#include <cstdint>
#include <map>
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
// shares memory with no other buffer, and the bytes of the largest array that they gather. Gathered
// arrays have up to kMostExchangedRows rows; arrays of experts have the pairs of up to that many
// rows.
inline constexpr std::string_view kExchange = "exchange";
inline constexpr int64_t kMostExchangedRows = 512;
int64_t ExchangedBytes(const program::Program& program);
void AddExchange(program::Program& program);

// Memory for NVFP4 inputs of products that the operator before them packs (RowsOut::codes), for
// steps of up to kMostPackedRows rows. Larger steps pack them in launches of their own, whose cost
// does not matter there. The buffer exists only where a product may read codes; it shares memory
// with no other.
inline constexpr std::string_view kPackedRows = "packed_rows";
inline constexpr int64_t kMostPackedRows = 512;

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
  float* image_rows = nullptr;  // destination of StoreImage; rows are image_stride elements apart
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
  const DeviceProgramWeights& weights() const { return weights_; }
  std::byte* BufferAt(program::BufferId buffer) const {
    return workspace_ + plan_.offsets[static_cast<size_t>(buffer)];
  }
  std::byte* BufferAt(std::string_view name) const {
    return BufferAt(program::FindBuffer(program_, name));
  }

 private:
  friend class DeviceWalk;

  // Finds the operators whose rows products read packed. No operator in between writes or packs
  // rows.
  void FindPackedRows();
  bool ReadsNvF4(const program::Project& product) const;

  program::Program program_;
  DeviceProgramWeights weights_;
  DevicePlan plan_;
  std::byte* workspace_;
  Parts parts_;
  std::vector<std::byte*> addresses_;  // by buffer: its address in the step being enqueued
  std::vector<std::byte*> homes_;  // the same, except for rows that a gather left in another place
  std::vector<bool> moved_;        // by buffer: whether its rows have been moved (KeepRows)
  std::vector<OpTimes::Count*> counts_;  // by operator; empty: not counted
  // By operator that writes rows of NVFP4 which products read: the first of those; and the reverse.
  std::map<int32_t, const program::Project*> packs_for_;
  std::map<const program::Project*, int32_t> packed_by_;
  std::byte* packed_rows_ = nullptr;  // null: nothing is packed there
  // Gathers whose results are read before the next gather alone.
  std::set<const program::Gather*> fleeting_;
};

// Sets sizes of buffers that depend on the weights, which a builder does not know: scratch memory
// of products, and inputs in a matrix's order. Adds kPackedRows where it is needed.
// `rounds_whole_rows`: whether config.json says that inputs may be rounded with scales of rows or
// of groups, for a plan, whose weights do not say so.
void SizeProductBuffers(program::Program& program, const DeviceProgramWeights& weights,
                        const DeviceInfo& device, const device::DeviceLinearOptions& options,
                        bool rounds_whole_rows = false);

}  // namespace sluice
