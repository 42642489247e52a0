// Makes programs: the tables that operators name, and operators that models have in common.
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

// What programs of a device are made for.
struct DeviceTarget {
  // The type of products that a nonlinear function reads: keys, values, gates. In models with
  // experts it is F32, since rounding changes the choice between two experts that are nearly as
  // good; in others BF16 halves what is written and read again.
  ElementType wide = ElementType::kBF16;
  int64_t attention_partials = 0;  // bytes
  int64_t lora_ranks = 0;          // F32 numbers of a row that adapters make; 0: there are none
  // Whether a row of an MLP may be rounded by what all of its numbers are: ranks then gather it in
  // F32 before.
  bool rounds_whole_rows = false;
};

// Rows that a product reads.
struct RowsIn {
  BufferId data = kNone;
  BufferId scales = kNone;  // on a device
  BufferId narrow = kNone;  // on a device, where Convert writes them
};

class Builder {
 public:
  // `rounding`: the most that any layer does to its inputs. `splits_inputs`:
  // DecoderSpec::SplitsInputs. `device`: null for the CPU.
  Builder(const ModelOptions& options, InputRounding rounding, bool splits_inputs,
          const DeviceTarget* device);

  bool is_device() const { return device_ != nullptr; }
  const DeviceTarget& device() const { return *device_; }
  // In what products write that a nonlinear function reads.
  ElementType wide() const { return is_device() ? device_->wide : ElementType::kF32; }

  // The buffer of that name, which is as large as its largest use.
  BufferId Array(std::string_view name, Extent extent, int64_t row_bytes);
  BufferId F32(std::string_view name, Extent extent, int64_t width) {
    return Array(name, extent, width * int64_t{sizeof(float)});
  }
  BufferId Wide(std::string_view name, Extent extent, int64_t width) {
    return Array(name, extent, width * BitsPerElement(wide()) / 8);
  }
  // Rows that a product reads: BF16 on a device, F32 where any layer rounds or splits its inputs,
  // else of the compute type.
  BufferId Inputs(std::string_view name, Extent extent, int64_t width);
  // The same with what they need to be rounded as they are written.
  RowsIn Rows(std::string_view name, Extent extent, int64_t width);
  BufferId Results(int64_t width);
  void Keep(BufferId buffer, int64_t copies = 1) {
    at(buffer).copies = copies;
    at(buffer).is_kept = true;
  }

  // kNone unless it exists: one that is not loaded yet is empty, too.
  VectorId Vector(const std::vector<float>& vector, bool exists);
  LinearId Linear(const LinearWeights& weights);
  ExpertsId Experts(const ExpertWeights& weights);
  TableId Table(const kernels::PackedMatrix& table);
  AttentionId Attention(const AttentionSpec& attention);
  MoeId Moe(const MoeSpec& moe);
  MixerId Mixer(const MixerSpec& mixer);

  // The type in which rows are written that a linear layer reads.
  ElementType InputType(const LinearInputs& inputs) const;

  // --- operators ---
  template <typename T>
  T& Emit(T op) {
    return std::get<T>(program_.ops.emplace_back(std::move(op)));
  }
  int32_t next() const { return static_cast<int32_t>(program_.ops.size()); }
  // Multiplies x, in its inputs' type, to dense F32 rows of y; `n` and `k` are the matrix's sizes.
  Project& Multiply(const LinearWeights& weights, const RowsIn& x, BufferId y, int64_t n,
                    int64_t k);
  ProjectExperts& MultiplyExperts(const ExpertWeights& weights, const RowsIn& x, BufferId y,
                                  int64_t n, int64_t k);
  // On a device, what adapters make of rows.
  BufferId LoraScratch(Extent extent);
  // Emits what `emit` emits as parts of at most `rows` rows.
  template <typename Emitter>
  void InParts(int64_t rows, int64_t pairs_each, Emitter&& emit) {
    const int32_t begin = next();
    Emit(Parts{.rows = rows, .pairs_each = pairs_each});
    emit();
    std::get<Parts>(program_.ops[static_cast<size_t>(begin)]).count = next() - begin - 1;
  }
  // Emits a layer.
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
  // For rows of `k` inputs and `n` results.
  RoundingBuffers Rounding(Extent extent, int64_t n, int64_t k);

  const ModelOptions& options_;
  InputRounding rounding_;
  bool splits_inputs_;
  const DeviceTarget* const device_;
  Program program_;
};

}  // namespace sluice::program
