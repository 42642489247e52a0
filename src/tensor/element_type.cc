#include "tensor/element_type.h"

#include <array>

namespace sluice {
namespace {

struct Row {
  ElementType type;
  std::string_view name;
  int bits;
};

// The rows have the order of the enum.
constexpr std::array kRows = {
    Row{ElementType::kBool, "BOOL", 8},      Row{ElementType::kU8, "U8", 8},
    Row{ElementType::kI8, "I8", 8},          Row{ElementType::kI16, "I16", 16},
    Row{ElementType::kU16, "U16", 16},       Row{ElementType::kI32, "I32", 32},
    Row{ElementType::kU32, "U32", 32},       Row{ElementType::kI64, "I64", 64},
    Row{ElementType::kU64, "U64", 64},       Row{ElementType::kF16, "F16", 16},
    Row{ElementType::kBF16, "BF16", 16},     Row{ElementType::kF32, "F32", 32},
    Row{ElementType::kF64, "F64", 64},       Row{ElementType::kF8E4M3, "F8_E4M3", 8},
    Row{ElementType::kF8E5M2, "F8_E5M2", 8}, Row{ElementType::kF8E8M0, "F8_E8M0", 8},
    Row{ElementType::kF4E2M1, "F4", 4},      Row{ElementType::kInt4, "INT4", 4},
};

const Row& Find(ElementType type) {
  return kRows[static_cast<size_t>(type)];
}

}  // namespace

int BitsPerElement(ElementType type) {
  return Find(type).bits;
}

std::string_view ElementTypeName(ElementType type) {
  return Find(type).name;
}

std::optional<ElementType> ParseElementType(std::string_view safetensors_name) {
  for (const Row& row : kRows) {
    if (row.name == safetensors_name && row.type != ElementType::kInt4) return row.type;
  }
  return std::nullopt;
}

}  // namespace sluice
