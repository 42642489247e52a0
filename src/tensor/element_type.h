// Names and widths of the element types.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/element_type_enum.h"

namespace sluice {

int BitsPerElement(ElementType type);
// Returns the name as spelled in safetensors: "F32", "BF16", "F8_E4M3", ...
std::string_view ElementTypeName(ElementType type);
std::optional<ElementType> ParseElementType(std::string_view safetensors_name);

}  // namespace sluice
