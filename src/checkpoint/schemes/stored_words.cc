#include "checkpoint/schemes/stored_words.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/schemes/tensor_checks.h"

namespace sluice {
namespace {

// Collects the tensors of a layer, in the order of StoredLinear::tensors.
class WordsFinder {
 public:
  WordsFinder(const Checkpoint& checkpoint, const std::string& module, int64_t rows, int64_t cols,
              const ModulePlan& plan)
      : checkpoint_(checkpoint),
        module_(module),
        rows_(rows),
        cols_(cols),
        layout_(*plan.layout),
        is_int8_(layout_.format.type == ElementType::kI8),
        codes_in_word_(is_int8_ ? 4 : 8),
        why_(fmt::format("{} weights [{}, {}]", layout_.name, rows, cols)) {
    linear_.matrix = {.format = layout_.format,
                      .rows = rows,
                      .cols = cols,
                      .transposed = layout_.words.transposed,
                      .has_offset_codes = is_int8_,
                      .packing = layout_.words.packing};
    linear_.activations = layout_.activations;
    if (plan.excluded)
      linear_.surprise = "quantized although the configuration lists it as excluded";
  }

  Result<StoredLinear> Find() && {
    RETURN_IF_ERROR(FindCodes());
    RETURN_IF_ERROR(FindScales());
    RETURN_IF_ERROR(FindZeroPoints());
    RETURN_IF_ERROR(FindGroups());
    RETURN_IF_ERROR(FindShape());
    return std::move(linear_);
  }

 private:
  int64_t groups() const {
    return layout_.format.group_size == 0 ? 1 : cols_ / layout_.format.group_size;
  }
  // Returns a tensor's shape in the file, given its shape [r, c] before transposition.
  std::vector<int64_t> Shape(int64_t r, int64_t c) const {
    if (layout_.words.transposed) std::swap(r, c);
    return {r, c};
  }
  std::string NameOf(std::string_view suffix) const {
    return fmt::format("{}.{}", module_, suffix);
  }

  Status FindCodes() {
    const StoredTensor& data = *checkpoint_.Find(NameOf(layout_.data));
    linear_.tensors.push_back(&data);
    linear_.matrix.data = data.bytes().data();
    RETURN_IF_ERROR(CheckType(data, {ElementType::kI32}, why_));
    const int64_t group_size = layout_.format.group_size;
    if (group_size != 0 && cols_ % group_size != 0) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format("tensor '{}' has {} inputs, which is not a multiple of the group size {}",
                      data.info->name, cols_, group_size),
          data.info->name);
    }
    const bool packs_outputs = layout_.words.packing == Int4Packing::kOutputs;
    if (cols_ % codes_in_word_ != 0 || (packs_outputs && rows_ % codes_in_word_ != 0)) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("tensor '{}' holds [{}, {}] codes of {} bits; expected {} in whole "
                              "words of {}",
                              data.info->name, rows_, cols_, 32 / codes_in_word_,
                              packs_outputs ? "outputs and inputs" : "inputs", codes_in_word_),
                  data.info->name);
    }
    return CheckShape(data,
                      packs_outputs ? std::vector<int64_t>{cols_, rows_ / codes_in_word_}
                                    : Shape(rows_, cols_ / codes_in_word_),
                      false, why_);
  }

  Status FindScales() {
    const std::string name = NameOf(layout_.scales.front());
    const StoredTensor* scales = checkpoint_.Find(name);
    if (scales == nullptr)
      return MissingTensor(name, fmt::format("(the scales of {} weights)", layout_.name));
    const std::string why = "scales of " + why_;
    RETURN_IF_ERROR(
        CheckType(*scales, {ElementType::kF32, ElementType::kBF16, ElementType::kF16}, why));
    RETURN_IF_ERROR(CheckShape(*scales, Shape(rows_, groups()), groups() == 1, why));
    linear_.tensors.push_back(scales);
    linear_.matrix.scales = scales->bytes().data();
    linear_.matrix.format.scale_type = scales->info->type;
    return {};
  }

  Status FindZeroPoints() {
    const WordLayout& words = layout_.words;
    if (words.zero_points.empty()) return {};
    const std::string name = NameOf(words.zero_points);
    const StoredTensor* zeros = checkpoint_.Find(name);
    if (zeros == nullptr)
      return MissingTensor(name, fmt::format("(the zero points of {} weights)", layout_.name));
    const std::string why = "zero points of " + why_;
    RETURN_IF_ERROR(CheckType(*zeros, {ElementType::kI32}, why));
    const int64_t row_words = (rows_ + codes_in_word_ - 1) / codes_in_word_;
    RETURN_IF_ERROR(CheckShape(*zeros, Shape(row_words, groups()), groups() == 1, why));
    linear_.tensors.push_back(zeros);
    linear_.matrix.zero_points = zeros->bytes().data();
    linear_.matrix.zero_point_offset = words.zero_point_offset;
    if (!words.are_symmetric) return {};
    const int expected = is_int8_ ? 128 : kInt4Zero;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t group = 0; group < groups(); ++group) {
        const int zero =
            is_int8_ ? Int8ZeroPoint(row, group) : Int4ZeroPoint(linear_.matrix, row, group);
        if (zero == expected) continue;
        return Misfit(*zeros,
                      fmt::format("{} everywhere: the configuration says that the weights are "
                                  "symmetric. {}",
                                  expected,
                                  is_int8_ ? "Asymmetric weights of 8 bits are not supported"
                                           : "If they are not, set sym to false there"),
                      fmt::format("the zero point {} for output {}, group {}", zero, row, group));
      }
    }
    linear_.matrix.zero_points = nullptr;
    return {};
  }

  // Returns a zero point of an INT8 layer. A word holds the zero points of four rows for one group.
  int Int8ZeroPoint(int64_t row, int64_t group) const {
    const int64_t word =
        layout_.words.transposed ? group * ((rows_ + 3) / 4) + row / 4 : row / 4 * groups() + group;
    const std::byte stored = linear_.matrix.zero_points[word * 4 + row % 4];
    return (std::to_integer<int>(stored) + linear_.matrix.zero_point_offset) & 255;
  }

  // Reads the group of each input. The inputs of a group need not be contiguous.
  Status FindGroups() {
    if (layout_.words.group_index.empty()) return {};
    const std::string name = NameOf(layout_.words.group_index);
    const StoredTensor* index = checkpoint_.Find(name);
    DataFormat& format = linear_.matrix.format;
    if (index == nullptr) {
      if (!format.has_input_order) return {};
      return MissingTensor(name,
                           "(the group of each input, whose order the configuration changes)");
    }
    const std::string why = "the group of each input of " + why_;
    RETURN_IF_ERROR(CheckType(*index, {ElementType::kI32}, why));
    RETURN_IF_ERROR(CheckShape(*index, {cols_}, false, why));
    linear_.tensors.push_back(index);
    std::vector<int32_t> group_of(static_cast<size_t>(cols_));
    std::memcpy(group_of.data(), index->bytes().data(), index->bytes().size());
    // compressed-tensors writes -1 everywhere if there is no input order.
    if (std::all_of(group_of.begin(), group_of.end(), [](int32_t group) { return group == -1; }))
      return {};
    const int64_t group_size = cols_ / groups();
    std::vector<int64_t> sizes(static_cast<size_t>(groups()));
    bool in_order = true;
    for (int64_t i = 0; i < cols_; ++i) {
      const int32_t group = group_of[static_cast<size_t>(i)];
      if (group < 0 || group >= groups()) {
        return Misfit(*index, fmt::format("groups from 0 to {} ({})", groups() - 1, why),
                      fmt::format("the group {} for input {}", group, i));
      }
      ++sizes[static_cast<size_t>(group)];
      in_order = in_order && group == i / group_size;
    }
    if (in_order) return {};
    for (int64_t group = 0; group < groups(); ++group) {
      if (sizes[static_cast<size_t>(group)] == group_size) continue;
      return Misfit(*index, fmt::format("{} inputs in each group ({})", group_size, why),
                    fmt::format("{} inputs in group {}", sizes[static_cast<size_t>(group)], group));
    }
    if (!format.has_input_order) {
      return Misfit(*index,
                    "each input in the group of its position, because the configuration does not "
                    "state a different order of inputs (desc_act of GPTQ, actorder of "
                    "compressed-tensors)",
                    "inputs in another order");
    }
    auto order = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(cols_));
    std::iota(order->begin(), order->end(), 0);
    std::stable_sort(order->begin(), order->end(), [&](int32_t a, int32_t b) {
      return group_of[static_cast<size_t>(a)] < group_of[static_cast<size_t>(b)];
    });
    linear_.matrix.input_order = order->data();
    linear_.input_order = std::move(order);
    return {};
  }

  Status FindShape() {
    if (layout_.words.shape.empty()) return {};
    const StoredTensor* shape = checkpoint_.Find(NameOf(layout_.words.shape));
    if (shape == nullptr) return {};
    linear_.tensors.push_back(shape);
    const std::string why = "the shape of " + why_;
    RETURN_IF_ERROR(CheckType(*shape, {ElementType::kI64, ElementType::kI32}, why));
    RETURN_IF_ERROR(CheckShape(*shape, {2}, false, why));
    int64_t stored[2] = {};
    const size_t bytes = shape->bytes().size() / 2;
    for (size_t i = 0; i < 2; ++i)
      std::memcpy(&stored[i], shape->bytes().data() + i * bytes, bytes);
    if (stored[0] == rows_ && stored[1] == cols_) return {};
    return Misfit(*shape, fmt::format("[{}, {}] from config.json", rows_, cols_),
                  fmt::format("the values [{}, {}]", stored[0], stored[1]));
  }

  const Checkpoint& checkpoint_;
  const std::string& module_;
  const int64_t rows_, cols_;
  const LinearLayout& layout_;
  const bool is_int8_;
  const int64_t codes_in_word_;
  const std::string why_;
  StoredLinear linear_;
};

}  // namespace

Result<StoredLinear> FindStoredWords(const Checkpoint& checkpoint, const std::string& module,
                                     int64_t rows, int64_t cols, const ModulePlan& plan) {
  return WordsFinder(checkpoint, module, rows, cols, plan).Find();
}

}  // namespace sluice
