// Runs a program on a device once: holds the step and the current rows, and has a function for each
// operator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/check.h"
#include "models/device/device_executor.h"
#include "models/program/walk.h"

namespace sluice {

inline int64_t DeviceElementBytes(ElementType type) {
  return type == ElementType::kF32 ? 4 : type == ElementType::kBF16 ? 2 : 1;
}

class DeviceWalk : private program::Walk<DeviceWalk> {
 public:
  DeviceWalk(DeviceExecutor& executor, const DeviceStep& step);

  int64_t Run();
  // Measures matrix products; the contents of arrays do not matter.
  Status Tune();

 private:
  friend class program::Walk<DeviceWalk>;
  using BufferId = program::BufferId;

  // Uses another place for the buffer's rows for the rest of the step.
  void Move(BufferId buffer, std::byte* to) {
    executor_.addresses_[static_cast<size_t>(buffer)] = to;
    executor_.homes_[static_cast<size_t>(buffer)] = to;
  }
  // Returns the address of the buffer's current rows; null for kNone. A row has `row_bytes` bytes.
  std::byte* At(BufferId buffer, int64_t row_bytes) const;
  template <typename T>
  T* RowsAt(BufferId buffer, int64_t width) const {
    return reinterpret_cast<T*>(At(buffer, width * int64_t{sizeof(T)}));
  }
  const float* Vector(program::VectorId id) const {
    return id == program::kNone ? nullptr : weights_.vectors[static_cast<size_t>(id)];
  }
  const DeviceLinearWeights& Linear(program::LinearId id) const {
    return weights_.linears[static_cast<size_t>(id)];
  }
  const DeviceExpertWeights& Experts(program::ExpertsId id) const {
    return weights_.experts[static_cast<size_t>(id)];
  }
  const MoeSpec& Moe(program::MoeId id) const { return program_.moes[static_cast<size_t>(id)]; }
  // Describes output rows of `width` elements in the format of `inputs`. `scales` is used only if
  // rows are rounded.
  device::RowsOut RowsOutAt(BufferId data, BufferId scales, int64_t width,
                            const DeviceInputs& inputs) const;
  const AttentionSpec& WholeAttention(int64_t layer) const {
    return parts_.whole.layers[static_cast<size_t>(layer)].attention;
  }
  // Like RowsOutAt, for rows that the current operator writes for a product. NVFP4 rows are also
  // packed, if that product reads codes.
  device::RowsOut PackedRowsOutAt(BufferId data, BufferId scales, int64_t width, int64_t rows,
                                  const DeviceInputs& inputs);
  device::KvArrays ArraysOf(int64_t layer, float k_scale, float v_scale) const;

  // Functions for products and adapters.
  device::LinearArgs ProductOf(const program::Project& op, int64_t rows) const;
  device::RowsOut InputsOf(const program::Project& op) const;
  device::GroupedLinearArgs ExpertProducts(const program::ProjectExperts& op, int64_t pairs) const;
  std::optional<device::AddLoraArgs> AdaptersOf(int32_t layer, BufferId scratch) const;
  void AddLora(int32_t layer, BufferId scratch, const device::RowsOut& x, int64_t rows, void* y,
               ElementType y_type, int64_t cols) const;
  std::span<const int32_t> ReceiveExpertRows(BufferId row_begin, int64_t num_experts) const;
  // Returns the memory to which the product's inputs are packed before it, if the product reads
  // codes; null pointers if it never does.
  device::PackedRows PackedFor(const program::Project& op, int64_t rows) const;
  Status TuneExperts(const program::ProjectExperts& op) const;

  // Runs the operator with this index. If times are measured, waits until the operator has
  // finished.
  void RunAt(int32_t index);
  void RunOne(const program::Op& op) {
    std::visit([this](const auto& one) { (*this)(one); }, op);
  }
  // Never called. Operators that exist only on the CPU are not emitted for devices; the other ones
  // are handled by RunOps.
  template <typename Other>
  void operator()(const Other& /*op*/) {
    CHECK(false, "{} is no operator of devices", Other::kName);
  }
  void operator()(const program::Embed& op);
  void operator()(const program::MixTable& op);
  void operator()(const program::AddEmbeddings& op);
  void operator()(const program::RopeTable& op);
  void operator()(const program::Receive& op);
  void operator()(const program::Send& op);
  void operator()(const program::Norm& op);
  void operator()(const program::LayerNorm& op);
  void operator()(const program::NormRows& op);
  void operator()(const program::KeepRows& op);
  void operator()(const program::TakeHidden& op);
  void operator()(const program::JoinNorms& op);
  void operator()(const program::HandRows& op);
  void operator()(const program::Gather& op);
  void operator()(const program::Convert& op);
  void operator()(const program::Project& op);
  void operator()(const program::GateMul& op);
  void operator()(const program::RopeAppend& op);
  void operator()(const program::Attend& op);
  void operator()(const program::LatentAppend& op);
  void operator()(const program::ChoosePositions& op);
  void operator()(const program::AbsorbQueries& op);
  void operator()(const program::ExpandValues& op);
  void operator()(const program::Convolve& op);
  void operator()(const program::UpdateState& op);
  void operator()(const program::GateStates& op);
  void operator()(const program::GateAttended& op);
  void operator()(const program::Add& op);
  void operator()(const program::Scale& op);
  void operator()(const program::Route& op);
  void operator()(const program::GateShared& op);
  void operator()(const program::GroupExperts& op);
  void operator()(const program::ProjectExperts& op);
  void operator()(const program::CombineExperts& op);
  void operator()(const program::FinishLogits& op);
  void operator()(const program::CopyResults& op);
  void operator()(const program::PlaceImages& op);
  void operator()(const program::AddImages& op);
  void operator()(const program::CopyColumns& op);
  void operator()(const program::Regroup& op);
  void operator()(const program::MergePatches& op);
  void operator()(const program::Standardize& op);
  void operator()(const program::StoreImage& op);

  // Writes elements of image rows, starting at element `level` * width, to their rows of `x`.
  void PlaceImageRows(BufferId x, int64_t width, int64_t level, bool adds);
  void SumHeadSquares(const program::RopeAppend& op, const AttentionSpec& spec,
                      device::RopeAppendArgs& args);

  DeviceExecutor& executor_;
  const DeviceProgramWeights& weights_;
  const DeviceExecutor::Parts& parts_;
  const DeviceStep& step_;
  const device::DeviceKernels& kernels_;
  const StreamHandle handle_;
  bool are_wanted_ = false;  // whether the current rows are only those that have results
  int32_t index_ = 0;        // of the current operator
  int32_t converted_ = -1;   // the Convert that the operator before it has done
  // The rows that were packed last.
  struct {
    int32_t by = -1;             // index of the operator that packed them
    const void* rows = nullptr;  // address of the unpacked rows
    int64_t count = 0;
    device::PackedRows at = {};
  } packed_;
  // For the current part's experts: whether the host has read the number of rows per expert and, if
  // each expert's product runs separately, where the rows of each expert begin.
  bool has_looked_ = false;
  std::span<const int32_t> row_begin_;
};

}  // namespace sluice
