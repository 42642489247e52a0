// The storage formats of a checkpoint's matrices, as far as they affect its size.
#pragma once

#include <optional>
#include <string_view>

namespace sluice {

enum class WeightFormat { kBf16, kFp8, kInt8, kNvfp4, kMxfp4, kInt4 };

std::string_view WeightFormatName(WeightFormat format);

// Returns the bytes per weight, including its share of the scales.
double BytesPerWeight(WeightFormat format);

// Returns the format in the name of a published checkpoint or of its scheme: "...-FP8", "...-FP4"
// (NVIDIA's is NVFP4), "...-MXFP4-Preview", "...-AWQ", "...-GPTQ-Int4", "...-w4a16", "ModelOpt
// NVFP4". Returns BF16 if the name has none.
WeightFormat FormatOfName(std::string_view name);

}  // namespace sluice
