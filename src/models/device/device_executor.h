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

// Adds the buffer "step_inputs" for a step's inputs. It shares memory with no other buffer.
void AddStepInputs(program::Program& program, int64_t bytes);

// The buffer of image rows (StepInput::stored_image_rows), F32 [places, image_row_width]. It shares
// memory with no other buffer.
inline constexpr std::string_view kImageRows = "image_rows";
void AddImageRows(program::Program& program, int64_t bytes);

// kExchange: the memory of exchanges between devices that address each other's memory
// (PeerExchange). It shares memory with no other buffer. ExchangedBytes: bytes of the largest array
// that they gather. Gathered arrays have up to kMostExchangedRows rows. Arrays of experts have one
// row for each pair of row and expert.
inline constexpr std::string_view kExchange = "exchange";
inline constexpr int64_t kMostExchangedRows = 512;
int64_t ExchangedBytes(const program::Program& program);
void AddExchange(program::Program& program);

// Memory for NVFP4 inputs that the operator before a product packs (RowsOut::codes), in steps of up
// to kMostPackedRows rows. Larger steps pack inputs in separate launches, whose cost is negligible
// for their size. The buffer exists only if a product may read codes. It shares memory with no
// other buffer.
inline constexpr std::string_view kPackedRows = "packed_rows";
inline constexpr int64_t kMostPackedRows = 512;

// The buffer of Model::kept_rows(). It shares memory with no other buffer.
inline constexpr std::string_view kKeptRows = "kept_rows";
void AddKeptRows(program::Program& program, int64_t bytes);

// Arguments of a run of a program.
struct DeviceStep {
  const DeviceStepView* inputs = nullptr;
  const KvCache* cache = nullptr;
  int64_t rows = 0;
  int64_t wanted = 0;
  // Adapter slot of each row; -1 for rows without an adapter.
  std::span<const int32_t> adapters = {};
  float* results = nullptr;     // host memory, for CopyResults
  float* image_rows = nullptr;  // destination of StoreImage; rows are image_stride elements apart
  int64_t image_stride = 0;
  DeviceHidden hidden = {};  // hidden rows that TakeHidden reads
  bool takes_target = true;
  bool is_recorded = false;
};

// Allocates nothing after construction. Thread safety: one thread at a time. Ownership: owns the
// program; all other objects outlive it.
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

  // `workspace`: plan.total_bytes bytes. Does not access the host weights that the program points
  // to.
  DeviceExecutor(program::Program program, DeviceProgramWeights weights, DevicePlan plan,
                 std::byte* workspace, const Parts& parts);

  // Enqueues the operators. Returns the number of remaining rows. Throws if enqueueing fails.
  int64_t Run(const DeviceStep& step);

  // Measures matrix products for which several kernels exist, and chooses the fastest.
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

  // For each product that reads packed NVFP4 rows, finds the operator that can pack these rows when
  // it writes them. No operator in between overwrites the rows or packs others.
  void FindPackedRows();
  bool ReadsNvF4(const program::Project& product) const;

  program::Program program_;
  DeviceProgramWeights weights_;
  DevicePlan plan_;
  std::byte* workspace_;
  Parts parts_;
  std::vector<std::byte*> addresses_;  // by buffer: the buffer's address in the step being enqueued
  // By buffer: its planned address, which differs if a gather left the rows elsewhere.
  std::vector<std::byte*> homes_;
  std::vector<bool> moved_;              // by buffer: whether its rows have been moved (KeepRows)
  std::vector<OpTimes::Count*> counts_;  // by operator; empty: not counted
  // packs_for_: for each operator (by index) that writes NVFP4 rows, the first product that reads
  // them. The other map is its inverse.
  std::map<int32_t, const program::Project*> packs_for_;
  std::map<const program::Project*, int32_t> packed_by_;
  std::byte* packed_rows_ = nullptr;  // null: no rows are packed
  // Gathers whose results are read only before the next gather.
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
