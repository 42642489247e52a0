#include "checkpoint/schemes/tensor_checks.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {
namespace {

std::string FileOf(const StoredTensor& tensor) {
  return tensor.file->path().filename().string();
}

// Removes dimensions of size 1, because tools differ in whether they keep them.
std::vector<int64_t> Squeezed(std::span<const int64_t> shape) {
  std::vector<int64_t> result;
  for (const int64_t size : shape) {
    if (size != 1) result.push_back(size);
  }
  return result;
}

}  // namespace

tl::unexpected<Error> Misfit(const StoredTensor& tensor, std::string_view expected,
                             std::string_view found) {
  return Fail(ErrorCode::kInvalidData,
              fmt::format("tensor '{}' in {} has {}, expected {}", tensor.info->name,
                          FileOf(tensor), found, expected),
              tensor.info->name);
}

tl::unexpected<Error> MissingTensor(const std::string& name, std::string_view what) {
  return Fail(ErrorCode::kInvalidData, fmt::format("tensor '{}' {} is missing", name, what), name);
}

Status CheckShape(const StoredTensor& tensor, const std::vector<int64_t>& expected, bool squeeze,
                  std::string_view why) {
  const bool fits =
      squeeze ? Squeezed(tensor.info->shape) == Squeezed(expected) : tensor.info->shape == expected;
  if (fits) return {};
  return Misfit(tensor, fmt::format("{} ({})", ShapeText(expected), why),
                fmt::format("shape {}", ShapeText(tensor.info->shape)));
}

Status CheckType(const StoredTensor& tensor, std::initializer_list<ElementType> allowed,
                 std::string_view why) {
  if (std::find(allowed.begin(), allowed.end(), tensor.info->type) != allowed.end()) return {};
  std::vector<std::string_view> names;
  for (const ElementType type : allowed) names.push_back(ElementTypeName(type));
  return Misfit(tensor, fmt::format("{} ({})", fmt::join(names, " or "), why),
                fmt::format("type {}", ElementTypeName(tensor.info->type)));
}

}  // namespace sluice
