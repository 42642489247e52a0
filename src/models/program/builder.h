// Builds programs: their tables, and the operators that several models share.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "models/input_rounding.h"
#include "models/model.h"
#include "models/program/program.h"
#include "models/weights.h"

namespace sluice::program {

// Properties of a device that its programs depend on.
struct DeviceTarget {
  // Type of product results that are inputs of a nonlinear function: keys, values, gates. F32 in
  // models with experts, because rounding can change the choice between two nearly equal experts.
  // Otherwise BF16, which halves the memory traffic.
  ElementType wide = ElementType::kBF16;
  int64_t attention_partials = 0;  // bytes of attention's partial results
  int64_t lora_ranks = 0;          // F32 elements per row that adapters compute; 0: no adapters
  // Whether the rounding of an MLP's row may depend on the whole row. If so, ranks gather the row
  // in F32 before it is rounded.
  bool rounds_whole_rows = false;
};

// Input rows of a product.
struct RowsIn {
  BufferId data = kNone;
  BufferId scales = kNone;  // scales of the rows; only on a device
  BufferId narrow = kNone;  // output of Convert; only on a device
};

class Builder {
 public:
  // `rounding`: the largest InputRounding of any layer. `splits_inputs`: result of
  // DecoderSpec::SplitsInputs. `device`: null for the CPU.
  Builder(const ModelOptions& options, InputRounding rounding, bool splits_inputs,
          const DeviceTarget* device);

  bool is_device() const { return device_ != nullptr; }
  const DeviceTarget& device() const { return *device_; }
  // Returns the type of product results that are inputs of a nonlinear function.
  ElementType wide() const { return is_device() ? device_->wide : ElementType::kF32; }

  // Returns the buffer with this name, adding it if necessary. Its size is the largest that is
  // requested.
  BufferId Array(std::string_view name, Extent extent, int64_t row_bytes);
  BufferId F32(std::string_view name, Extent extent, int64_t width) {
    return Array(name, extent, width * int64_t{sizeof(float)});
  }
  BufferId Wide(std::string_view name, Extent extent, int64_t width) {
    return Array(name, extent, width * BitsPerElement(wide()) / 8);
  }
  // Returns a buffer for input rows of a product. They are BF16 on a device, F32 if any layer
  // rounds or splits its inputs, else in the compute type.
  BufferId Inputs(std::string_view name, Extent extent, int64_t width);
  // Like Inputs, with the buffers needed to round the rows when they are written.
  RowsIn Rows(std::string_view name, Extent extent, int64_t width);
  BufferId Results(int64_t width);
  void Keep(BufferId buffer, int64_t copies = 1) {
    at(buffer).copies = copies;
    at(buffer).is_kept = true;
  }

  // Returns the vector's id, or kNone unless `exists`. Emptiness cannot be tested instead, because
  // a vector that is not loaded yet is also empty.
  VectorId Vector(const std::vector<float>& vector, bool exists);
  LinearId Linear(const LinearWeights& weights);
  ExpertsId Experts(const ExpertWeights& weights);
  TableId Table(const kernels::PackedMatrix& table);
  AttentionId Attention(const AttentionSpec& attention);
  MoeId Moe(const MoeSpec& moe);
  MixerId Mixer(const MixerSpec& mixer);

  // Returns the type of a linear layer's input rows.
  ElementType InputType(const LinearInputs& inputs) const;

  // --- operators ---
  template <typename T>
  T& Emit(T op) {
    return std::get<T>(program_.ops.emplace_back(std::move(op)));
  }
  int32_t next() const { return static_cast<int32_t>(program_.ops.size()); }
  // Multiplies x, in its input type, by the matrix [n, k]. Writes contiguous F32 rows to y.
  Project& Multiply(const LinearWeights& weights, const RowsIn& x, BufferId y, int64_t n,
                    int64_t k);
  ProjectExperts& MultiplyExperts(const ExpertWeights& weights, const RowsIn& x, BufferId y,
                                  int64_t n, int64_t k);
  // Returns the device buffer for the adapters' intermediate results.
  BufferId LoraScratch(Extent extent);
  // Emits the operators that `emit` adds, so that they run in parts of at most `rows` rows.
  template <typename Emitter>
  void InParts(int64_t rows, int64_t pairs_each, Emitter&& emit) {
    const int32_t begin = next();
    Emit(Parts{.rows = rows, .pairs_each = pairs_each});
    emit();
    std::get<Parts>(program_.ops[static_cast<size_t>(begin)]).count = next() - begin - 1;
  }
  // Emits the operators of a layer.
  template <typename Emitter>
  void InLayer(Emitter&& emit) {
    const int32_t begin = next();
    emit();
    program_.layers.push_back({begin, next()});
  }
  void SkipTo(int32_t skip, int32_t to) {
    std::get<SkipUnless>(program_.ops[static_cast<size_t>(skip)]).to = to;
  }

  Program& program() { return program_; }
  const ModelOptions& options() const { return options_; }

 private:
  Buffer& at(BufferId buffer) { return program_.buffers[static_cast<size_t>(buffer)]; }
  DeviceInputBuffers DeviceBuffers(const RowsIn& x, Extent extent);
  // Returns the rounding buffers for rows with `k` inputs and `n` results.
  RoundingBuffers Rounding(Extent extent, int64_t n, int64_t k);

  const ModelOptions& options_;
  InputRounding rounding_;
  bool splits_inputs_;
  const DeviceTarget* const device_;
  Program program_;
};

}  // namespace sluice::program
