// Finds the tensors of a linear layer and checks them against the layout.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/scalar_tensor.h"
#include "checkpoint/schemes/stored_words.h"
#include "checkpoint/schemes/tensor_checks.h"

namespace sluice {
namespace {

using ScaleLayout = DataFormat::ScaleLayout;

// The layer whose tensors are searched, and how they are stored.
struct Place {
  const Checkpoint& checkpoint;
  const std::string& module;
  int64_t rows = 0;
  int64_t cols = 0;
  // Number of experts in a fused tensor; 0: the layer has its own tensors.
  int64_t num_experts = 0;
  int64_t expert = 0;
  bool transposed = false;

  std::string NameOf(std::string_view suffix) const {
    return fmt::format("{}{}{}", module, num_experts == 0 ? '.' : '_', suffix);
  }
  std::string DataName(std::string_view suffix) const {
    return num_experts == 0 ? NameOf(suffix) : module;
  }
  // Returns the shape that a tensor has in the file if its part for this layer has the shape
  // [r, c].
  std::vector<int64_t> Shape(int64_t r, int64_t c) const {
    if (transposed) std::swap(r, c);
    if (num_experts == 0) return {r, c};
    return {num_experts, r, c};
  }
  // Returns the layer's part of a tensor: in a fused tensor, its expert's part.
  const std::byte* Part(const StoredTensor& tensor) const {
    const auto bytes = tensor.bytes();
    if (num_experts == 0) return bytes.data();
    return bytes.data() +
           bytes.size() / static_cast<size_t>(num_experts) * static_cast<size_t>(expert);
  }
};

bool IsPlainFloat(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
}

// Returns the tensor that has one of these suffixes; null if there is none.
Result<const StoredTensor*> FindOne(const Place& place,
                                    const std::vector<std::string_view>& suffixes) {
  const StoredTensor* found = nullptr;
  for (const std::string_view suffix : suffixes) {
    const StoredTensor* tensor = place.checkpoint.Find(place.NameOf(suffix));
    if (tensor != nullptr && found != nullptr) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("tensors '{}' and '{}' are two names of the same scale",
                              found->info->name, tensor->info->name),
                  tensor->info->name);
    }
    if (tensor != nullptr) found = tensor;
  }
  return found;
}

// Returns the layer's scale: a scalar, or its expert's element of a tensor [num_experts].
Result<float> ReadScale(const Place& place, const StoredTensor& tensor, bool is_divisor) {
  ASSIGN_OR_RETURN(const float value, ReadScaleScalar(tensor, place.num_experts, place.expert));
  return is_divisor ? 1 / value : value;
}

Status FindScales(const Place& place, const LinearLayout& layout, StoredLinear& linear) {
  DataFormat& format = linear.matrix.format;
  ASSIGN_OR_RETURN(const StoredTensor* tensor, FindOne(place, layout.scales));
  if (tensor == nullptr) {
    return MissingTensor(place.NameOf(layout.scales.front()),
                         fmt::format("(the scale of {} weights)", layout.name));
  }
  const StoredTensor& scales = *tensor;
  linear.tensors.push_back(&scales);
  const std::string why =
      fmt::format("scale of {} weights [{}, {}]", layout.name, place.rows, place.cols);
  int64_t row_count = 0, col_count = 0;
  switch (format.scale_layout) {
    case ScaleLayout::kPerTensor: {
      RETURN_IF_ERROR(
          CheckType(scales, {ElementType::kF32, ElementType::kBF16, ElementType::kF16}, why));
      const bool for_each = place.num_experts != 0 && scales.info->num_elements() != 1;
      if (!for_each) {
        RETURN_IF_ERROR(CheckShape(scales, {}, true, why));
        linear.matrix.scales = scales.bytes().data();
      } else {
        RETURN_IF_ERROR(CheckShape(scales, {place.num_experts}, true, why));
        linear.matrix.scales = place.Part(scales);
      }
      format.scale_type = scales.info->type;
      return {};
    }
    case ScaleLayout::kPerRow: {
      RETURN_IF_ERROR(
          CheckType(scales, {ElementType::kF32, ElementType::kBF16, ElementType::kF16}, why));
      RETURN_IF_ERROR(CheckShape(scales, place.Shape(place.rows, 1), true, why));
      format.scale_type = scales.info->type;
      linear.matrix.scales = place.Part(scales);
      return {};
    }
    case ScaleLayout::kPerBlock:
      if (place.transposed) {
        return Fail(
            ErrorCode::kUnsupported,
            fmt::format("tensor '{}' is transposed and has block scales, which is not supported",
                        place.module),
            place.module);
      }
      RETURN_IF_ERROR(CheckType(
          scales, {ElementType::kF32, ElementType::kBF16, ElementType::kF16, ElementType::kF8E8M0},
          why));
      format.scale_type = scales.info->type;
      row_count = (place.rows + format.block_rows - 1) / format.block_rows;
      col_count = (place.cols + format.group_size - 1) / format.group_size;
      break;
    case ScaleLayout::kPerGroup:
      if (format.type == ElementType::kI8) {
        RETURN_IF_ERROR(
            CheckType(scales, {ElementType::kF32, ElementType::kBF16, ElementType::kF16}, why));
        format.scale_type = scales.info->type;
      } else if (format.scale_type == ElementType::kF8E8M0) {
        RETURN_IF_ERROR(CheckType(scales, {ElementType::kU8, ElementType::kF8E8M0}, why));
      } else {
        RETURN_IF_ERROR(CheckType(scales, {format.scale_type}, why));
      }
      row_count = place.rows;
      col_count = place.cols / format.group_size;
      break;
    case ScaleLayout::kNone: return {};
  }
  RETURN_IF_ERROR(CheckShape(scales, place.Shape(row_count, col_count), true, why));
  linear.matrix.scales = place.Part(scales);
  return {};
}

Result<StoredLinear> FindPlain(const Place& place, const StoredTensor& data,
                               const ModulePlan& plan) {
  RETURN_IF_ERROR(CheckShape(data, place.Shape(place.rows, place.cols), false, "config.json"));
  StoredLinear linear;
  linear.matrix = PlainMatrix(place.Part(data), data.info->type, place.rows, place.cols);
  linear.matrix.transposed = place.transposed;
  linear.tensors = {&data};
  if (plan.layout != nullptr && !plan.excluded)
    linear.surprise = "stored as plain numbers although the configuration quantizes it";
  return linear;
}

// Reads the zero point of a layer's inputs, an integer in [-128, 127].
Status FindInputZeroPoint(const Place& place, const LinearLayout& layout, StoredLinear& linear) {
  if (layout.input_zero_point.empty()) return {};
  const StoredTensor* tensor = place.checkpoint.Find(place.NameOf(layout.input_zero_point));
  if (tensor == nullptr) return {};
  const std::string why = fmt::format("the zero point of the inputs of {} weights", layout.name);
  RETURN_IF_ERROR(
      CheckType(*tensor, {ElementType::kI8, ElementType::kI32, ElementType::kI64}, why));
  const bool for_each = place.num_experts != 0 && tensor->info->num_elements() != 1;
  RETURN_IF_ERROR(CheckShape(
      *tensor, for_each ? std::vector<int64_t>{place.num_experts} : std::vector<int64_t>{}, true,
      why));
  const int64_t bytes = BitsPerElement(tensor->info->type) / 8;
  int64_t value = 0;  // two's complement, little-endian
  std::memcpy(&value, tensor->bytes().data() + (for_each ? place.expert * bytes : 0),
              static_cast<size_t>(bytes));
  const int unused = static_cast<int>(64 - 8 * bytes);
  value = static_cast<int64_t>(static_cast<uint64_t>(value) << unused) >> unused;
  if (value < -128 || value > 127)
    return Misfit(*tensor, "an integer from -128 to 127", fmt::format("{}", value));
  linear.activations.zero_point = static_cast<int>(value);
  linear.tensors.push_back(tensor);
  return {};
}

Result<StoredLinear> FindQuantized(const Place& place, const StoredTensor& data,
                                   const ModulePlan& plan) {
  const LinearLayout& layout = *plan.layout;
  const DataFormat& format = layout.format;
  const bool is_packed = format.type == ElementType::kF4E2M1;
  const std::string why = fmt::format("{} weights [{}, {}]", layout.name, place.rows, place.cols);
  if (is_packed) {
    RETURN_IF_ERROR(CheckType(data, {ElementType::kU8, ElementType::kI8}, why));
  } else {
    RETURN_IF_ERROR(CheckType(data, {format.type}, why));
  }
  if (format.scale_layout == ScaleLayout::kPerGroup && place.cols % format.group_size != 0) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("tensor '{}' has {} inputs, which is not a multiple of the group size {}",
                    data.info->name, place.cols, format.group_size),
        data.info->name);
  }
  RETURN_IF_ERROR(CheckShape(data, place.Shape(place.rows, is_packed ? place.cols / 2 : place.cols),
                             false, why));
  StoredLinear linear;
  linear.matrix = {.format = format,
                   .rows = place.rows,
                   .cols = place.cols,
                   .data = place.Part(data),
                   .transposed = place.transposed};
  linear.activations = layout.activations;
  linear.tensors = {&data};
  RETURN_IF_ERROR(FindScales(place, layout, linear));
  if (format.has_second_scale) {
    const std::string name = place.NameOf(layout.second_scale);
    const StoredTensor* second = place.checkpoint.Find(name);
    if (second == nullptr)
      return MissingTensor(name, fmt::format("(the second scale of {} weights)", layout.name));
    ASSIGN_OR_RETURN(linear.matrix.second_scale, ReadScale(place, *second, layout.stores_divisors));
    linear.tensors.push_back(second);
  }
  if (!layout.input_scales.empty()) {
    ASSIGN_OR_RETURN(const StoredTensor* scale, FindOne(place, layout.input_scales));
    if (scale == nullptr) {
      return MissingTensor(place.NameOf(layout.input_scales.front()),
                           fmt::format("(the scale of the inputs of {} weights)", layout.name));
    }
    ASSIGN_OR_RETURN(linear.input_scale, ReadScale(place, *scale, layout.stores_divisors));
    linear.tensors.push_back(scale);
  }
  RETURN_IF_ERROR(FindInputZeroPoint(place, layout, linear));
  if (plan.excluded) linear.surprise = "quantized although the configuration lists it as excluded";
  return linear;
}

Result<StoredLinear> FindAt(const Place& place, const ModulePlan& plan) {
  const std::string plain_name = place.DataName("weight");
  const StoredTensor* data = place.checkpoint.Find(plain_name);
  if (data != nullptr && IsPlainFloat(data->info->type)) return FindPlain(place, *data, plan);
  if (plan.layout == nullptr) {
    if (data != nullptr) {
      return Misfit(*data, "F32, F16 or BF16: the configuration names no quantization of it",
                    fmt::format("type {}", ElementTypeName(data->info->type)));
    }
    return MissingTensor(
        plain_name, fmt::format("of shape {}", ShapeText(place.Shape(place.rows, place.cols))));
  }
  const std::string name = place.DataName(plan.layout->data);
  data = place.checkpoint.Find(name);
  if (data == nullptr) {
    return MissingTensor(
        plan.excluded ? plain_name : name,
        fmt::format("of shape {}", ShapeText(place.Shape(place.rows, place.cols))));
  }
  if (plan.layout->is_in_words) {
    if (place.num_experts != 0) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("tensor '{}' of all experts in {} is not supported; each expert must "
                              "have its own tensors",
                              name, plan.layout->name),
                  name);
    }
    return FindStoredWords(place.checkpoint, place.module, place.rows, place.cols, plan);
  }
  return FindQuantized(place, *data, plan);
}

}  // namespace

Result<StoredLinear> FindStoredLinear(const Checkpoint& checkpoint, const std::string& module,
                                      int64_t rows, int64_t cols, const ModulePlan& plan) {
  return FindAt({.checkpoint = checkpoint, .module = module, .rows = rows, .cols = cols}, plan);
}

Result<std::optional<StoredLinear>> FindStoredExpert(const Checkpoint& checkpoint,
                                                     const std::string& module, int64_t expert,
                                                     int64_t num_experts, int64_t rows,
                                                     int64_t cols, bool transposed,
                                                     const ModulePlan& plan) {
  if (checkpoint.Find(module) == nullptr) return std::nullopt;
  return FindAt({.checkpoint = checkpoint,
                 .module = module,
                 .rows = rows,
                 .cols = cols,
                 .num_experts = num_experts,
                 .expert = expert,
                 .transposed = transposed},
                plan);
}

}  // namespace sluice
