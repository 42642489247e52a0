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

// The number of bits of a weight: one of `allowed`, from the first of `keys` that the block has.
Result<int64_t> ReadIntegerBits(const json::Value& block, const std::string& where,
                                std::initializer_list<std::string_view> keys,
                                std::initializer_list<int64_t> allowed);
// Number of inputs per group, a multiple of 32; -1: one scale per row.
Result<int64_t> ReadInt4GroupSize(const json::Value& block, const std::string& where,
                                  std::initializer_list<std::string_view> keys);

// qweight, qzeros and scales, transposed.
LinearLayout Int4GroupLayout(int64_t group_size);

// "INT4 in groups of 128, asymmetric, inputs reordered": for messages.
std::string IntegerText(const LinearLayout& layout);

}  // namespace sluice
