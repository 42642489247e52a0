#include "server/api/pooling/pooled_vector.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/base64.h"
#include "server/api/common/answer_json.h"

namespace sluice {

void Activate(PoolingActivation activation, std::vector<float>& vector) {
  switch (activation) {
    case PoolingActivation::kNone: return;
    case PoolingActivation::kNormalize: {
      double squares = 0;
      for (const float x : vector) squares += double{x} * double{x};
      const double norm = std::max(std::sqrt(squares), 1e-12);
      for (float& x : vector) x = static_cast<float>(x / norm);
      return;
    }
    case PoolingActivation::kSigmoid:
      for (float& x : vector) x = static_cast<float>(1 / (1 + std::exp(-double{x})));
      return;
    case PoolingActivation::kSoftmax: {
      if (vector.empty()) return;
      const float most = *std::max_element(vector.begin(), vector.end());
      double sum = 0;
      for (const float x : vector) sum += std::exp(double{x} - most);
      for (float& x : vector) x = static_cast<float>(std::exp(double{x} - most) / sum);
      return;
    }
  }
}

void FinishVector(const PoolingConfig& config, const PoolingFields& fields,
                  std::vector<float>& vector) {
  if (fields.dimensions) vector.resize(static_cast<size_t>(*fields.dimensions));
  if (fields.use_activation.value_or(true)) Activate(config.activation, vector);
}

ApiStatus CheckFinite(const std::vector<std::vector<float>>& vectors) {
  for (const std::vector<float>& vector : vectors) {
    if (std::ranges::all_of(vector, [](float x) { return std::isfinite(x); })) continue;
    ApiError error;
    error.status = 500;
    error.type = "InternalServerError";
    error.message = "the model returned a vector with NaN or infinite values";
    return tl::unexpected<ApiError>(std::move(error));
  }
  return {};
}

void AppendNumbers(std::string& out, std::span<const float> numbers) {
  out.push_back('[');
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendFormat(out, "{}", numbers[i]);
  }
  out.push_back(']');
}

void AppendVector(std::string& out, std::span<const float> vector, const PoolingFields& fields) {
  if (fields.encoding == "float") return AppendNumbers(out, vector);
  const bool is_big = fields.endianness == "big" ||
                      (fields.endianness == "native" && std::endian::native == std::endian::big);
  std::string bytes;
  bytes.reserve(sizeof(float) * vector.size());
  for (const float x : vector) {
    const auto bits = std::bit_cast<uint32_t>(x);
    for (size_t i = 0; i < sizeof bits; ++i)
      bytes.push_back(static_cast<char>(bits >> (8 * (is_big ? sizeof bits - 1 - i : i))));
  }
  out.push_back('"');
  AppendBase64(out, bytes);
  out.push_back('"');
}

void AppendPoolingUsage(std::string& out, int64_t prompt_tokens) {
  out += R"(,"usage":)";
  AppendUsage(out, prompt_tokens, 0);
  out += R"(,"prompt_tokens_details":null})";
}

}  // namespace sluice
