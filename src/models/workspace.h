// The memory of one step's activations, laid out once for the largest step.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/matrix.h"
#include "models/decoder_spec.h"
#include "models/model.h"
#include "tensor/buffer.h"

namespace sluice {

// Byte offsets of the step's arrays. Arrays that are never alive together share memory: the normed
// rows with the attention's result, and the attention's arrays with the MLP's.
struct WorkspaceLayout {
  int64_t residual = 0;  // [rows, hidden] F32
  int64_t delta = 0;     // [rows, hidden] F32: what the last sub-layer adds to the residual
  int64_t normed =
      0;  // [rows, max(hidden, q_width)] compute type: input of the next matrix product
  int64_t cos_sin = 0;  // [rows, head_dim] F32
  int64_t qkv = 0;      // [rows, qkv_width] F32
  int64_t scratch = 0;  // of the attention
  int64_t scratch_bytes = 0;
  int64_t gate_up = 0;    // [mlp_rows, 2 * intermediate] F32
  int64_t activated = 0;  // [mlp_rows, intermediate] compute type
  int64_t mlp_rows = 0;   // rows that go through the MLP at once
  int64_t total_bytes = 0;

  static WorkspaceLayout For(const DecoderSpec& spec, const ModelOptions& options, int num_threads);
};

// The arrays themselves.
// Ownership: owns the memory; move-only.
class Workspace {
 public:
  static Result<Workspace> Allocate(const WorkspaceLayout& layout);

  float* residual() const { return At<float>(layout_.residual); }
  float* delta() const { return At<float>(layout_.delta); }
  void* normed() const { return At<std::byte>(layout_.normed); }
  void* attended() const { return normed(); }
  float* cos_sin() const { return At<float>(layout_.cos_sin); }
  float* qkv() const { return At<float>(layout_.qkv); }
  std::span<std::byte> scratch() const {
    return {At<std::byte>(layout_.scratch), static_cast<size_t>(layout_.scratch_bytes)};
  }
  float* gate_up() const { return At<float>(layout_.gate_up); }
  void* activated() const { return At<std::byte>(layout_.activated); }
  int64_t mlp_rows() const { return layout_.mlp_rows; }

 private:
  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }

  WorkspaceLayout layout_;
  Buffer memory_;
};

// The layout of the KV cache that the options ask for.
kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options);

}  // namespace sluice
