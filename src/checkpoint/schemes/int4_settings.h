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

// The bits of a weight: one of `allowed`, by the first of those keys that the block has.
Result<int64_t> ReadIntegerBits(const json::Value& block, const std::string& where,
                                std::initializer_list<std::string_view> keys,
                                std::initializer_list<int64_t> allowed);
// Inputs of a group, a multiple of 32; -1: a scale for each row.
Result<int64_t> ReadInt4GroupSize(const json::Value& block, const std::string& where,
                                  std::initializer_list<std::string_view> keys);

// qweight, qzeros and scales, transposed.
LinearLayout Int4GroupLayout(int64_t group_size);

// "INT4 in groups of 128, asymmetric, inputs reordered": for people.
std::string IntegerText(const LinearLayout& layout);

}  // namespace sluice
