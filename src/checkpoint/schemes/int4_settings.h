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

// The first of those keys that the block has must say 4.
Status CheckInt4Bits(const json::Value& block, const std::string& where,
                     std::initializer_list<std::string_view> keys);
// Inputs of a group, a multiple of 32; -1: a scale for each row.
Result<int64_t> ReadInt4GroupSize(const json::Value& block, const std::string& where,
                                  std::initializer_list<std::string_view> keys);

// qweight, qzeros and scales, transposed.
LinearLayout Int4GroupLayout(int64_t group_size);

// "INT4 in groups of 128, asymmetric, inputs reordered": for people.
std::string Int4Text(const LinearLayout& layout);

}  // namespace sluice
