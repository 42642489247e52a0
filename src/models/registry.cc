#include "models/registry.h"

#include <algorithm>

namespace sluice {

std::span<const ModelFamily* const> ModelFamilies() {
#define SLUICE_FAMILY_ADDRESS(name) &name,
  static constexpr const ModelFamily* kFamilies[] = {SLUICE_MODEL_FAMILIES(SLUICE_FAMILY_ADDRESS)};
#undef SLUICE_FAMILY_ADDRESS
  return kFamilies;
}

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const ModelFamily* family : ModelFamilies()) names.emplace_back(family->architecture);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace sluice
