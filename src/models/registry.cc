#include "models/registry.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/model.h"

namespace sluice {
namespace {

const std::array kFamilies = {&kLlama, &kLlama4, &kLlama4Text, &kMistral,
                              &kQwen2, &kQwen3,  &kQwen3Moe};

}  // namespace

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const ModelFamily* family : kFamilies) names.emplace_back(family->architecture);
  std::sort(names.begin(), names.end());
  return names;
}

Result<DecoderSpec> DescribeModel(const ModelConfig& config) {
  for (const ModelFamily* family : kFamilies) {
    if (family->architecture == config.architecture) return family->describe(config);
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("architecture {} is not supported; supported are {}", config.architecture,
                          fmt::join(SupportedArchitectures(), ", ")),
              "architectures");
}

}  // namespace sluice
