#include "models/matrix_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "models/weight_loader.h"

namespace sluice {
namespace {

using ScaleLayout = DataFormat::ScaleLayout;

bool HasScalesOfRows(const DataFormat& format) {
  return format.scale_layout == ScaleLayout::kPerTensor ||
         format.scale_layout == ScaleLayout::kPerRow;
}

bool IsPlain(const DataFormat& format) {
  return format.scale_layout == ScaleLayout::kNone;
}

// Returns the format of the packed matrix: scales of tensors and rows become F32 scales of rows;
// scales of blocks become F32.
DataFormat InMemory(DataFormat format) {
  if (HasScalesOfRows(format)) {
    format.scale_layout = ScaleLayout::kPerRow;
    format.scale_type = ElementType::kF32;
  } else if (format.scale_layout == ScaleLayout::kPerBlock || format.type == ElementType::kInt4 ||
             format.type == ElementType::kI8) {
    format.scale_type = ElementType::kF32;
  }
  return format;
}

ElementType PlainType(ElementType stored, ElementType compute_type) {
  if (compute_type == ElementType::kBF16 || stored == ElementType::kBF16) return ElementType::kBF16;
  return ElementType::kF32;
}

bool AreAlike(const std::vector<DataFormat>& stored) {
  return std::all_of(stored.begin(), stored.end(), [&](const DataFormat& format) {
    return InMemory(format) == InMemory(stored.front());
  });
}

bool AllPlain(const std::vector<DataFormat>& stored) {
  return std::all_of(stored.begin(), stored.end(), IsPlain);
}

// Checks that the parts have the same input order. They are stacked to one matrix, so one product
// multiplies all of them by the same x.
Status CheckInputOrders(const std::vector<StoredLinear>& parts) {
  const auto& first = parts.front().input_order;
  for (const StoredLinear& part : parts) {
    const auto& order = part.input_order;
    if (order == first || (order != nullptr && first != nullptr && *order == *first)) continue;
    const TensorInfo& info = *part.tensors.front()->info;
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("tensor '{}' has a different order of inputs from '{}', and one product "
                    "multiplies both; expected the same g_idx for both. Quantize the "
                    "model without act-order, or with actorder weight",
                    info.name, parts.front().tensors.front()->info->name),
        info.name);
  }
  return {};
}

// Returns the rounding of inputs for a matrix, which has only one. If the parts have different
// formats, inputs are not rounded. Otherwise the largest scale is used, because the parts have the
// same inputs.
LinearInputs JoinInputs(const std::vector<StoredLinear>& parts) {
  LinearInputs inputs{.format = parts.front().activations,
                      .scale = parts.front().input_scale.value_or(1)};
  for (const StoredLinear& part : parts) {
    if (part.activations != inputs.format) return {};
    inputs.scale = std::max(inputs.scale, part.input_scale.value_or(1));
  }
  if (!parts.front().input_scale) inputs.scale = 1;
  return inputs;
}

// Returns the pieces of the parts. A fused tensor contains the rows of all parts consecutively;
// consecutive rows form one piece.
std::vector<MatrixSource::Piece> PiecesOf(const MatrixParameter& matrix, bool is_fused) {
  std::vector<MatrixSource::Piece> pieces;
  int64_t first_row = 0;
  for (size_t i = 0; i < matrix.parts.size(); ++i) {
    RowRange rows = matrix.parts[i].held_rows();
    if (!is_fused) {
      pieces.push_back({i, rows});
      continue;
    }
    rows = {first_row + rows.begin, first_row + rows.end};
    first_row += matrix.parts[i].rows;
    if (rows.size() == 0) continue;
    if (!pieces.empty() && pieces.back().rows.end == rows.begin)
      pieces.back().rows.end = rows.end;
    else
      pieces.push_back({0, rows});
  }
  return pieces;
}

// Checks that a tensor has this shape and is not quantized.
Status CheckPlain(const StoredTensor& tensor, const std::string& name,
                  const std::vector<int64_t>& shape) {
  if (tensor.info->shape != shape) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("tensor '{}' has shape {}, expected {} from config.json", name,
                            ShapeText(tensor.info->shape), ShapeText(shape)),
                name);
  }
  const ElementType type = tensor.info->type;
  if (type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16)
    return {};
  return Fail(ErrorCode::kInvalidData,
              fmt::format("tensor '{}' has type {}, expected F32, F16 or BF16", name,
                          ElementTypeName(type)),
              name);
}

// Returns one expert's matrix [rows, cols] of a FusedExpert::flat tensor.
Result<std::optional<StoredLinear>> FindFlat(const FusedExpert& fused, const std::string& name,
                                             int64_t rows, int64_t cols,
                                             const Checkpoint& checkpoint) {
  const StoredTensor* tensor = checkpoint.Find(name);
  if (tensor == nullptr) return std::nullopt;
  const int64_t each = fused.transposed ? cols : rows, width = fused.transposed ? rows : cols;
  RETURN_IF_ERROR(CheckPlain(*tensor, name, {fused.num_experts * each, width}));
  const ElementType type = tensor->info->type;
  const int64_t bytes = each * width * BitsPerElement(type) / 8;
  StoredLinear linear;
  linear.matrix = PlainMatrix(tensor->bytes().data() + fused.expert * bytes, type, rows, cols);
  linear.matrix.transposed = fused.transposed;
  linear.tensors = {tensor};
  return linear;
}

// Returns the tensor of a matrix with MatrixParameter::shape.
Result<StoredLinear> FindShaped(const MatrixParameter& matrix, const Checkpoint& checkpoint,
                                const QuantizationScheme& scheme) {
  const ParameterPart& part = matrix.parts.front();
  const std::string name = matrix.linear == nullptr ? part.name : part.name + ".weight";
  if (matrix.linear != nullptr && !IsPlain(scheme.PlannedFormat(part.name))) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "tensor '{}' contains a matrix whose rows are inputs, which is supported only in plain "
            "formats, not as {}; use an unquantized checkpoint, and omit --quantization",
            name, scheme.Name()),
        name);
  }
  const StoredTensor* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("tensor '{}' of shape {} is missing", name, ShapeText(matrix.shape)),
                name);
  }
  RETURN_IF_ERROR(CheckPlain(*tensor, name, matrix.shape));
  const ElementType type = tensor->info->type;
  StoredLinear linear;
  linear.matrix = PlainMatrix(tensor->bytes().data(), type, part.rows, matrix.cols);
  linear.matrix.transposed = matrix.is_transposed;
  linear.tensors = {tensor};
  return linear;
}

}  // namespace

DataFormat PackedFormat(const std::vector<DataFormat>& stored, ElementType compute_type) {
  if (!AllPlain(stored)) {
    if (AreAlike(stored)) return InMemory(stored.front());
    return {.type = compute_type};
  }
  const bool one_type = std::all_of(stored.begin(), stored.end(), [&](const DataFormat& format) {
    return format.type == stored.front().type;
  });
  // F32 can represent the values of all unquantized types.
  return {.type = PlainType(one_type ? stored.front().type : ElementType::kF32, compute_type)};
}

int64_t MatrixSource::stored_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces) {
    const StoredMatrix& matrix = parts[piece.part].matrix;
    bytes += piece.rows.size() * (matrix.cols * BitsPerElement(matrix.format.type) / 8) +
             ScaleBytes(matrix);
  }
  return bytes;
}

DataFormat TakenFormat(const DataFormat& stored, ElementType compute_type) {
  return {.type = IsPlain(stored) ? PlainType(stored.type, compute_type) : compute_type};
}

namespace {

// Returns one expert's matrix from the tensor `module`, which contains all experts.
Result<std::optional<StoredLinear>> FindExpert(const FusedExpert& fused, const std::string& module,
                                               int64_t rows, int64_t cols,
                                               const Checkpoint& checkpoint,
                                               const QuantizationScheme& scheme) {
  if (fused.flat) return FindFlat(fused, module, rows, cols, checkpoint);
  bool transposed = fused.transposed;
  if (fused.either) {
    const StoredTensor* tensor = checkpoint.Find(module);
    if (tensor != nullptr &&
        tensor->info->shape == std::vector<int64_t>{fused.num_experts, rows, cols})
      transposed = false;
  }
  return scheme.FindFusedExpert(checkpoint, module, fused.expert, fused.num_experts, rows, cols,
                                transposed);
}

}  // namespace

Result<MatrixSource> FindMatrix(const MatrixParameter& matrix, const Checkpoint& checkpoint,
                                const QuantizationScheme& scheme, ElementType compute_type) {
  MatrixSource source;
  if (matrix.taken) {
    const TakenRows& taken = *matrix.taken;
    ASSIGN_OR_RETURN(StoredLinear found, scheme.Find(checkpoint, matrix.parts.front().name,
                                                     taken.module_rows, taken.module_cols));
    source.packed = TakenFormat(found.matrix.format, compute_type);
    source.decodes = true;
    source.pieces = {{0, taken.rows}};
    source.parts.push_back(std::move(found));
    return source;
  }
  if (matrix.fused) {
    const FusedExpert& fused = *matrix.fused;
    ASSIGN_OR_RETURN(auto expert, FindExpert(fused, fused.module, matrix.stored_rows(), matrix.cols,
                                             checkpoint, scheme));
    if (expert) source.parts.push_back(*std::move(expert));
  }
  source.pieces = PiecesOf(matrix, /*is_fused=*/!source.parts.empty());
  if (source.parts.empty()) {
    for (const ParameterPart& part : matrix.parts) {
      if (!part.fused.empty()) {
        const FusedExpert& fused = *matrix.fused;
        ASSIGN_OR_RETURN(auto expert,
                         FindExpert(fused, part.fused, part.rows, matrix.cols, checkpoint, scheme));
        if (expert) {
          source.parts.push_back(*std::move(expert));
          continue;
        }
      }
      ASSIGN_OR_RETURN(StoredLinear found,
                       matrix.shape.empty()
                           ? scheme.Find(checkpoint, part.name, part.rows, matrix.cols)
                           : FindShaped(matrix, checkpoint, scheme));
      source.parts.push_back(std::move(found));
    }
  }
  std::vector<DataFormat> stored;
  for (const StoredLinear& part : source.parts) stored.push_back(part.loaded_format());
  source.packed = PackedFormat(stored, compute_type);
  source.decodes = !AllPlain(stored) && !AreAlike(stored);
  source.inputs = JoinInputs(source.parts);
  if (!source.decodes) RETURN_IF_ERROR(CheckInputOrders(source.parts));
  return source;
}

}  // namespace sluice
