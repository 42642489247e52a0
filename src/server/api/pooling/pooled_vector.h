// What is done to the vectors of a model that pools before clients see them, and how they are
// written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pooling_config.h"
#include "server/api/common/api_error.h"
#include "server/api/pooling/pooling_request.h"

namespace sluice {

// In place: divided by its norm; each number or all together made probabilities.
void Activate(PoolingActivation activation, std::vector<float>& vector);

// Cut to the dimensions that are asked for, then activated unless the request says otherwise.
void FinishVector(const PoolingConfig& config, const PoolingFields& fields,
                  std::vector<float>& vector);

// 500 where a number is NaN or infinite: JSON has no such numbers.
ApiStatus CheckFinite(const std::vector<std::vector<float>>& vectors);

// [0.5,…], each number as short as reads back to the same F32; or a string in base64.
void AppendVector(std::string& out, std::span<const float> vector, const PoolingFields& fields);
void AppendNumbers(std::string& out, std::span<const float> numbers);

// The usage of an answer that has no tokens of its own: `,"usage":{…}`.
void AppendPoolingUsage(std::string& out, int64_t prompt_tokens);

}  // namespace sluice
