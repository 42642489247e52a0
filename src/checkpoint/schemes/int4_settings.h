// Settings that GPTQ and AWQ have in common.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/schemes/linear_layout.h"

namespace sluice {

// Reads the number of bits of a weight from the first of `keys` that the block has. The number must
// be in `allowed`.
Result<int64_t> ReadIntegerBits(const json::Value& block, const std::string& where,
                                std::initializer_list<std::string_view> keys,
                                std::initializer_list<int64_t> allowed);
// Reads the number of inputs per group, a multiple of 32; -1: one scale per row.
Result<int64_t> ReadInt4GroupSize(const json::Value& block, const std::string& where,
                                  std::initializer_list<std::string_view> keys);

// The layout with transposed qweight, qzeros and scales.
LinearLayout Int4GroupLayout(int64_t group_size);

// Describes a layout for messages: "INT4 in groups of 128, asymmetric, inputs reordered".
std::string IntegerText(const LinearLayout& layout);

}  // namespace sluice
