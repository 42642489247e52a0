// One walk through a program on a device: the step, the rows that are computed now, and a function
// for each operator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/check.h"
#include "models/device/device_executor.h"

namespace sluice {

inline int64_t DeviceElementBytes(ElementType type) {
  return type == ElementType::kF32 ? 4 : type == ElementType::kBF16 ? 2 : 1;
}

class DeviceWalk {
 public:
  DeviceWalk(DeviceExecutor& executor, const DeviceStep& step);

  int64_t Run();
  // Measures products; the content of the arrays does not matter.
  Status Tune();

 private:
  using BufferId = program::BufferId;

  int64_t CountOf(BufferId buffer) const;
  // Null for kNone. Rows of the step have `row_bytes` each.
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
  // Rows of `width` numbers as `inputs` says.
  device::RowsOut RowsOutAt(BufferId data, BufferId scales, int64_t width,
                            const DeviceInputs& inputs) const;
  const AttentionSpec& WholeAttention(int64_t layer) const {
    return parts_.whole.layers[static_cast<size_t>(layer)].attention;
  }
  device::KvArrays ArraysOf(int64_t layer, float k_scale, float v_scale) const;

  // Products and adapters.
  device::LinearArgs ProductOf(const program::Project& op, int64_t rows) const;
  device::RowsOut InputsOf(const program::Project& op) const;
  device::GroupedLinearArgs ExpertProducts(const program::ProjectExperts& op, int64_t pairs) const;
  std::optional<device::AddLoraArgs> AdaptersOf(int32_t layer, BufferId scratch) const;
  void AddLora(int32_t layer, BufferId scratch, const device::RowsOut& x, int64_t rows, void* y,
               ElementType y_type, int64_t cols) const;
  std::span<const int32_t> ReceiveExpertRows(BufferId row_begin, int64_t num_experts) const;
  Status TuneExperts(const program::ProjectExperts& op) const;

  // The operator of that index; where times are counted, until it is done.
  void RunAt(int32_t index);
  int32_t RunParts(int32_t index);
  void RunOne(const program::Op& op) {
    std::visit([this](const auto& one) { (*this)(one); }, op);
  }
  // Operators of the CPU alone, which no builder emits for a device; and those of Run and RunParts.
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
  void operator()(const program::Gather& op);
  void operator()(const program::Convert& op);
  void operator()(const program::Project& op);
  void operator()(const program::GateMul& op);
  void operator()(const program::RopeAppend& op);
  void operator()(const program::Attend& op);
  void operator()(const program::Route& op);
  void operator()(const program::GateShared& op);
  void operator()(const program::GroupExperts& op);
  void operator()(const program::ProjectExperts& op);
  void operator()(const program::CombineExperts& op);
  void operator()(const program::FinishLogits& op);
  void operator()(const program::CopyResults& op);

  void SumHeadSquares(const program::RopeAppend& op, const AttentionSpec& spec,
                      device::RopeAppendArgs& args);

  DeviceExecutor& executor_;
  const program::Program& program_;
  const DeviceProgramWeights& weights_;
  const DeviceExecutor::Parts& parts_;
  const DeviceStep& step_;
  const device::DeviceKernels& kernels_;
  const StreamHandle handle_;
  int64_t rows_;
  bool are_wanted_ = false;  // whether rows are those whose results are wanted
  // The part that is computed now:
  bool is_part_ = false;
  int64_t first_ = 0, part_rows_ = 0, pairs_each_ = 1;
  // The experts of the part: whether the host has read how many rows each has, and where they begin
  // if each product runs by itself.
  bool has_looked_ = false;
  std::span<const int32_t> row_begin_;
};

}  // namespace sluice
