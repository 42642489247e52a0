// The LoRA options of an engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tensor/element_type.h"

namespace sluice {

// A LoRA adapter as configured or requested.
struct AdapterSource {
  std::string name;  // the name in requests
  std::filesystem::path path;
  std::string base;  // name of the base model in the list of models; "": the server's model

  bool operator==(const AdapterSource&) const = default;
};

struct AdapterSettings {
  bool enabled = false;
  std::vector<AdapterSource> modules;    // adapters to load at startup
  int64_t max_loras = 1;                 // maximum number of adapters in a step
  std::optional<int64_t> max_cpu_loras;  // maximum number of adapters in memory
  int64_t max_rank = 16;
  std::optional<ElementType> dtype;  // BF16 or F16 (stored as BF16); nullopt: the type of products
  std::vector<std::string> target_modules;  // see LoraOptions::target_modules
  // Names of modules, as in LoraOptions::replaced_modules, that are replaced in addition to those
  // in `modules`.
  std::vector<std::string> modules_to_save;

  bool operator==(const AdapterSettings&) const = default;
};

}  // namespace sluice
