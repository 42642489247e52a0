#include "planner/weight_format.h"

#include <string>

namespace sluice {

std::string_view WeightFormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16: return "BF16";
    case WeightFormat::kFp8: return "FP8";
    case WeightFormat::kInt8: return "INT8";
    case WeightFormat::kNvfp4: return "NVFP4";
    case WeightFormat::kMxfp4: return "MXFP4";
    case WeightFormat::kInt4: return "INT4";
  }
  return "";
}

double BytesPerWeight(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16: return 2;
    case WeightFormat::kFp8:
    case WeightFormat::kInt8: return 1;
    case WeightFormat::kNvfp4: return 0.5 + 1.0 / 16;  // a scale byte per 16 weights
    case WeightFormat::kMxfp4: return 0.5 + 1.0 / 32;  // a scale byte per 32 weights
    case WeightFormat::kInt4: return 0.5 + 4.0 / 128;  // an F32 scale per 128 weights
  }
  return 2;
}

WeightFormat FormatOfName(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  const auto has = [&](std::string_view part) { return upper.find(part) != std::string::npos; };
  if (has("MXFP4")) return WeightFormat::kMxfp4;
  if (has("FP4")) return WeightFormat::kNvfp4;
  if (has("FP8")) return WeightFormat::kFp8;
  if (has("AWQ") || has("GPTQ-INT4") || has("W4A16") || has("INT4")) return WeightFormat::kInt4;
  if (has("INT8") || has("W8A8")) return WeightFormat::kInt8;
  return WeightFormat::kBf16;
}

}  // namespace sluice
