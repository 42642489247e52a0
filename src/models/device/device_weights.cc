#include "models/device/device_weights.h"

#include <bit>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "base/integer.h"
#include "device/array_cutter.h"
#include "kernels/cuda/device_linear.h"
#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/mxf4_layout.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/panel_layout.h"

namespace sluice {
namespace {

using ScaleLayout = DataFormat::ScaleLayout;

bool IsPowerOfTwo(ElementType type) {
  return type == ElementType::kF8E8M0 || type == ElementType::kU8;
}

// Returns whether the matrix has row scales. Formats with one scale per tensor or row have row
// scales; so do group formats with a second scale or with scales that are not powers of two.
bool HasRowScales(const DataFormat& format) {
  // The matrix's row scales are stored as group scales.
  if (format.type == ElementType::kInt4) return false;
  switch (format.scale_layout) {
    case ScaleLayout::kPerTensor:
    case ScaleLayout::kPerRow: return true;
    case ScaleLayout::kPerGroup: return !IsPowerOfTwo(format.scale_type) || format.has_second_scale;
    default: return format.has_second_scale;
  }
}

// Returns the largest divisor of the format's block height that divides the start and end rows of
// all parts.
int64_t BlockRows(const MatrixParameter& matrix, const DataFormat& format) {
  int64_t rows = format.block_rows;
  for (size_t i = 0; i < matrix.parts.size(); ++i) {
    const RowRange held = matrix.parts[i].held_rows();
    rows = std::gcd(rows, held.begin);
    if (i + 1 < matrix.parts.size()) rows = std::gcd(rows, held.size());
  }
  return rows;
}

// Returns the number of rows of the modules in the checkpoint; several parts may be ranges of one
// module.
int64_t WholeRows(const MatrixParameter& matrix) {
  int64_t rows = 0;
  const std::string* last = nullptr;
  for (const ParameterPart& part : matrix.parts) {
    if (last == nullptr || part.name != *last) rows += part.rows;
    last = &part.name;
  }
  return rows;
}

Status CheckMatrix(const std::string& name, const DataFormat& format, int64_t cols) {
  const bool is_int8_group =
      format.type == ElementType::kI8 && format.scale_layout == ScaleLayout::kPerGroup;
  if (!kernels::PanelKindOf(format) || is_int8_group) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: weights of {} in this layout of scales have no kernels on a "
                            "device; those have: BF16, F16 and F32 without scales; F8_E4M3 with "
                            "one scale, a scale per row, or per block; I8 with one scale or a "
                            "scale per row; INT4 with scales of rows or of groups of a multiple of "
                            "32; NVFP4; MXFP4",
                            name, ElementTypeName(format.type)),
                name);
  }
  const int64_t bits = BitsPerElement(format.type);
  if (cols * bits % 128 != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} has {} inputs of {}: kernels of devices take rows of whole 16 "
                            "bytes, a multiple of {} inputs; serve this model on the CPU",
                            name, cols, ElementTypeName(format.type), 128 / bits),
                name);
  }
  if (format.group_size != 0 && format.scale_layout == ScaleLayout::kPerGroup &&
      cols % format.group_size != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected inputs in whole groups of {}, found {} inputs", name,
                            format.group_size, cols),
                name);
  }
  return {};
}

DeviceMatrixPlace Place(const MatrixParameter& matrix, const DataFormat& format,
                        ArrayCutter& cutter) {
  DeviceMatrixPlace place{.format = format,
                          .rows = matrix.rows(),
                          .cols = matrix.cols,
                          .whole_rows = WholeRows(matrix)};
  const int64_t begin = cutter.planned_end();
  place.codes = cutter.Take(place.rows * place.row_bytes());
  if (format.type == ElementType::kInt4) {
    place.block_rows = 1;
    place.group_scales = cutter.Take(place.group_scale_bytes());
    if (format.has_input_order) place.input_order = cutter.Take(place.cols * 4);
  } else if (format.scale_layout == ScaleLayout::kPerGroup) {
    place.group_scales = cutter.Take(place.group_scale_bytes());
  } else if (format.scale_layout == ScaleLayout::kPerBlock) {
    place.block_rows = BlockRows(matrix, format);
    place.group_scales = cutter.Take(place.group_scale_bytes());
  }
  if (HasRowScales(format)) place.row_scales = cutter.Take(place.rows * 4);
  place.total_bytes = cutter.planned_end() - begin;
  return place;
}

DeviceInputs InputsOf(const LinearInputs& inputs, const device::Weights& weights,
                      const DeviceRounding& rounding, bool to_nvf4) {
  using Kind = ActivationFormat::Kind;
  const bool e4m3_weights =
      weights.type == ElementType::kF8E4M3 && weights.group_type == device::GroupScales::kNone;
  const bool nvf4_weights =
      weights.type == ElementType::kF4E2M1 && weights.group_type == device::GroupScales::kE4M3;
  const bool mxf4_weights =
      weights.type == ElementType::kF4E2M1 && weights.group_type == device::GroupScales::kE8M0;
  if (rounding.e4m3 && e4m3_weights && inputs.format.kind == Kind::kFp8Static)
    return {ElementType::kF8E4M3, device::RowScale::kStatic, inputs.scale};
  // Such inputs stay in BF16, because no kernel limits a token's magnitude.
  if (rounding.e4m3 && e4m3_weights && inputs.format.kind == Kind::kFp8PerToken &&
      inputs.format.largest_amax == 0)
    return {ElementType::kF8E4M3, device::RowScale::kPerToken, 1};
  if (to_nvf4 && nvf4_weights && inputs.format.kind == Kind::kNvfp4 &&
      inputs.format.group_size == device::kNvF4Group)
    return {ElementType::kBF16, device::RowScale::kNvF4, inputs.scale};
  if (rounding.mxf4 && mxf4_weights && inputs.format.kind == Kind::kMxfp4 &&
      inputs.format.group_size == device::kMxF4Group)
    return {ElementType::kBF16, device::RowScale::kMxF4, 1};
  return {};
}

class Places : public DeviceParameterPlaces {
 public:
  Places(const ParameterList& list, const DeviceWeightLayout& layout,
         const DeviceRounding& rounding, std::byte* memory)
      : DeviceParameterPlaces(list, layout, memory), rounding_(rounding) {}

  DeviceLinearWeights Linear(const LinearWeights& weights) const {
    DeviceLinearWeights linear{.matrix = Matrix(weights.matrix),
                               .bias = Vector(weights.bias),
                               .input_order = InputOrder(weights.matrix),
                               .lora_layer = weights.lora_layer};
    linear.inputs = InputsOf(weights.inputs, linear.matrix, rounding_, rounding_.nvf4);
    return linear;
  }
  DeviceExpertWeights Experts(const ExpertWeights& weights) const {
    DeviceExpertWeights experts;
    experts.first.matrix = Matrix(weights.matrices.front());
    experts.first.bias = Vector(weights.bias);
    experts.first.lora_layer = weights.lora_layer;
    const auto inputs_of = [&](const LinearInputs& inputs) {
      return InputsOf(inputs, experts.first.matrix, rounding_, rounding_.nvf4_experts);
    };
    // Matrices of single heads (latent attention) read rows that are not rounded.
    if (!weights.inputs.empty()) experts.first.inputs = inputs_of(weights.inputs.front());
    // The rows of all experts are written at once, with a single input scale. If the experts'
    // scales differ, their inputs are not rounded.
    for (const LinearInputs& inputs : weights.inputs) {
      if (inputs_of(inputs) != experts.first.inputs) experts.first.inputs = {};
    }
    if (weights.matrices.size() < 2) return experts;
    const int64_t stride = PlaceOf(weights.matrices[1]).codes - PlaceOf(weights.matrices[0]).codes;
    experts.codes_stride = experts.group_scales_stride = stride;
    experts.row_scales_stride = stride / static_cast<int64_t>(sizeof(float));
    return experts;
  }

 private:
  const DeviceRounding& rounding_;
};

}  // namespace

int64_t DeviceMatrixPlace::group_size() const {
  // A multiple for which groups consist of whole pipeline stages of a product.
  constexpr int64_t kMultiple = 128;
  if (format.type == ElementType::kInt4 && format.group_size == 0)
    return CeilDiv(cols, kMultiple) * kMultiple;
  return format.group_size;
}

int64_t DeviceMatrixPlace::groups() const {
  return group_size() == 0 ? 0 : CeilDiv(cols, group_size());
}

int64_t DeviceMatrixPlace::group_scale_bytes() const {
  if (block_rows > 0) return CeilDiv(rows, block_rows) * groups() * 4;
  return has_nvf4_scales() ? device::NvF4ScaleBytes(rows, groups()) : rows * groups();
}

bool DeviceMatrixPlace::has_nvf4_scales() const {
  return format.type == ElementType::kF4E2M1 && !IsPowerOfTwo(format.scale_type);
}

const int32_t* DeviceMatrixPlace::InputOrderAt(const std::byte* memory) const {
  return input_order ? reinterpret_cast<const int32_t*>(memory + *input_order) : nullptr;
}

device::Weights DeviceMatrixPlace::At(std::byte* memory) const {
  device::Weights weights = {};
  weights.codes = memory + codes;
  weights.type = format.type;
  if (group_scales) {
    weights.group_scales = memory + *group_scales;
    weights.group = static_cast<int>(group_size());
    weights.block_rows = static_cast<int>(block_rows);
    weights.group_type = format.type == ElementType::kInt4 ? device::GroupScales::kWithZeros
                         : format.scale_layout == ScaleLayout::kPerBlock
                             ? device::GroupScales::kBlock
                         : IsPowerOfTwo(format.scale_type) ? device::GroupScales::kE8M0
                                                           : device::GroupScales::kE4M3;
  }
  if (row_scales) weights.row_scales = reinterpret_cast<const float*>(memory + *row_scales);
  weights.n = rows;
  weights.k = cols;
  if (scaled_parts.size() == 1) weights.same_row_scale = scaled_parts.front().scale;
  if (scaled_parts.size() > 1) {
    weights.num_parts = static_cast<int>(scaled_parts.size());
    std::copy(scaled_parts.begin(), scaled_parts.end(), weights.parts);
  }
  weights.whole_n = whole_rows;
  return weights;
}

DeviceParameterPlaces::DeviceParameterPlaces(const ParameterList& list,
                                             const DeviceWeightLayout& layout, std::byte* memory)
    : layout_(layout), memory_(memory) {
  for (size_t i = 0; i < list.matrices.size(); ++i) matrices_[list.matrices[i].target] = i;
  for (size_t i = 0; i < list.vectors.size(); ++i) vectors_[list.vectors[i].target] = i;
}

const uint16_t* DeviceParameterPlaces::Bf16(const kernels::PackedMatrix& target) const {
  CHECK(PlaceOf(target).format.type == ElementType::kBF16);
  return static_cast<const uint16_t*>(Matrix(target).codes);
}

const float* DeviceParameterPlaces::Vector(const std::vector<float>& target) const {
  const auto found = vectors_.find(&target);
  if (found == vectors_.end()) return nullptr;
  return reinterpret_cast<const float*>(memory_ + layout_.vector(found->second));
}

const float* DeviceParameterPlaces::RopeFrequencies() const {
  return reinterpret_cast<const float*>(memory_ + layout_.rope_frequencies());
}

void DeviceWeightLayout::SetScaledParts(std::vector<std::vector<device::ScaledPart>> parts) {
  CHECK_EQ(parts.size(), matrices_.size());
  for (size_t i = 0; i < parts.size(); ++i) matrices_[i].scaled_parts = std::move(parts[i]);
}

Result<DeviceWeightLayout> DeviceWeightLayout::For(
    const std::vector<std::vector<float>>& rope_tables, const ParameterList& list,
    const std::vector<DataFormat>& formats, bool keeps_apart) {
  CHECK_EQ(formats.size(), list.matrices.size());
  DeviceWeightLayout layout;
  ArrayCutter cutter(keeps_apart);
  for (size_t i = 0; i < list.matrices.size(); ++i) {
    const MatrixParameter& matrix = list.matrices[i];
    DataFormat format = formats[i];
    if (matrix.plain_on_device) format = {.type = ElementType::kBF16};
    RETURN_IF_ERROR(CheckMatrix(matrix.parts.front().name, format, matrix.cols));
    // One product computes all experts of a layer.
    if (matrix.fused && matrix.fused->expert > 0 && format != layout.matrices_.back().format) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("{} is stored in a different format ({}) than the expert before it ({}); "
                      "all experts of a layer must have one format",
                      matrix.parts.front().name, ElementTypeName(format.type),
                      ElementTypeName(layout.matrices_.back().format.type)),
          matrix.parts.front().name);
    }
    if (matrix.fused && format.has_input_order) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: INT4 weights of experts whose groups reorder their inputs "
                              "(act-order) have no kernels on a device; serve this model with "
                              "--device cpu, or take a checkpoint without act-order",
                              matrix.parts.front().name),
                  matrix.parts.front().name);
    }
    layout.matrices_.push_back(Place(matrix, format, cutter));
    const auto nowhere = std::bit_cast<std::byte*>(DevicePool::kAlignment);
    if (const Status status = device::CheckLinearWeights(layout.matrices_.back().At(nowhere));
        !status) {
      return Fail(status.error().code,
                  fmt::format("{}: {}", matrix.parts.front().name, status.error().message),
                  matrix.parts.front().name);
    }
  }
  for (const VectorParameter& vector : list.vectors)
    layout.vectors_.push_back(cutter.Take(vector.rows() * 4));
  int64_t num_frequencies = 0;
  for (const std::vector<float>& table : rope_tables) num_frequencies += std::ssize(table);
  layout.rope_frequencies_ = cutter.Take(num_frequencies * 4);
  layout.total_bytes_ = cutter.total_bytes();
  layout.gaps_ = cutter.gaps();
  return layout;
}

DeviceRounding DeviceRounding::For(const ModelOptions& options, const DeviceInfo& device) {
  using Rounding = ModelOptions::ActivationRounding;
  constexpr int kFirstWithE4m3 = 89, kFirstWithNvF4 = 100;
  if (options.activation_format == Rounding::kBf16) return {};
  const bool always = options.activation_format == Rounding::kCheckpoint;
  const int capability = device.compute_capability();
  return {.e4m3 = capability >= kFirstWithE4m3,
          .nvf4 = always || (capability >= kFirstWithNvF4 && !options.batch_invariant),
          .nvf4_experts = always,
          .mxf4 = always || device::MultipliesMxF4(device)};
}

const DeviceInputs& DeviceProgramWeights::InputsOf(const program::Reader& reader) const {
  static constexpr DeviceInputs kPlain;
  if (reader.linear != program::kNone) return linears[static_cast<size_t>(reader.linear)].inputs;
  if (reader.experts != program::kNone)
    return experts[static_cast<size_t>(reader.experts)].first.inputs;
  return kPlain;
}

DeviceTables TablesOf(const DecoderWeights& weights, const ParameterList& list,
                      const DeviceWeightLayout& layout, const DeviceRounding& rounding,
                      std::byte* memory) {
  const Places places(list, layout, rounding, memory);
  DeviceTables tables;
  if (places.Has(weights.embedding)) tables.embedding = places.Matrix(weights.embedding);
  if (places.Has(weights.head.matrix)) tables.head = places.Linear(weights.head);
  return tables;
}

DeviceProgramWeights PlaceWeights(const program::Program& program, const ParameterList& list,
                                  const DeviceWeightLayout& layout, const DeviceRounding& rounding,
                                  std::byte* memory, const SharedTables& shared) {
  const Places places(list, layout, rounding, memory);
  DeviceProgramWeights weights;
  weights.rope_frequencies = places.RopeFrequencies();
  const DecoderWeights* const owner = shared.owner;
  for (const LinearWeights* linear : program.linears) {
    if (owner != nullptr && linear == &owner->head) {
      weights.linears.push_back(shared.tables.head);
      continue;
    }
    // A head tied to the embedding table has no linear weights of its own.
    weights.linears.push_back(places.Has(linear->matrix) ? places.Linear(*linear)
                                                         : DeviceLinearWeights());
  }
  for (const ExpertWeights* experts : program.experts)
    weights.experts.push_back(places.Experts(*experts));
  for (const std::vector<float>* vector : program.vectors) {
    weights.vectors.push_back(places.Vector(*vector));
    weights.first_numbers.push_back(vector->empty() ? 1 : vector->front());
  }
  for (const kernels::PackedMatrix* table : program.tables) {
    const bool is_shared = owner != nullptr && table == &owner->embedding;
    weights.tables.push_back(is_shared ? shared.tables.embedding : places.Matrix(*table));
  }
  return weights;
}

}  // namespace sluice
