#include "server/api/pooled_vector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "server/api/writers/answer_json.h"

namespace sluice {
namespace {

void AppendBase64(std::string& out, std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k)
      out.push_back(k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=');
  }
}

}  // namespace

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
    error.message = "the model gave a vector with numbers that are not finite";
    return tl::unexpected<ApiError>(std::move(error));
  }
  return {};
}

void AppendNumbers(std::string& out, std::span<const float> numbers) {
  out.push_back('[');
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out.push_back(',');
    fmt::format_to(std::back_inserter(out), "{}", numbers[i]);
  }
  out.push_back(']');
}

void AppendVector(std::string& out, std::span<const float> vector, const PoolingFields& fields) {
  if (fields.encoding == "float") return AppendNumbers(out, vector);
  const bool is_big = fields.endianness == "big" ||
                      (fields.endianness == "native" && std::endian::native == std::endian::big);
  std::vector<uint8_t> bytes;
  bytes.reserve(sizeof(float) * vector.size());
  for (const float x : vector) {
    const auto bits = std::bit_cast<uint32_t>(x);
    for (size_t i = 0; i < sizeof bits; ++i)
      bytes.push_back(static_cast<uint8_t>(bits >> (8 * (is_big ? sizeof bits - 1 - i : i))));
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
