// Post-processes a pooling model's vectors and writes them as JSON.
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

// Changes the vector in place: divides it by its norm, or applies sigmoid to each number, or
// softmax to all.
void Activate(PoolingActivation activation, std::vector<float>& vector);

// Truncates the vector to the requested dimensions, then activates it unless the request forbids
// that.
void FinishVector(const PoolingConfig& config, const PoolingFields& fields,
                  std::vector<float>& vector);

// 500 if a number is NaN or infinite, which JSON cannot express.
ApiStatus CheckFinite(const std::vector<std::vector<float>>& vectors);

// Appends a list such as [0.5,…], with each number in the shortest form that parses to the same
// F32, or a Base64 string.
void AppendVector(std::string& out, std::span<const float> vector, const PoolingFields& fields);
void AppendNumbers(std::string& out, std::span<const float> numbers);

// Appends the usage of an answer without generated tokens: `,"usage":{…}`.
void AppendPoolingUsage(std::string& out, int64_t prompt_tokens);

}  // namespace sluice
