// What an engine is asked for as to LoRA adapters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tensor/element_type.h"

namespace sluice {

// An adapter as it is asked for.
struct AdapterSource {
  std::string name;  // by which requests ask for it
  std::filesystem::path path;
  std::string base;  // the name of the model that it is shown under; "": the server's

  bool operator==(const AdapterSource&) const = default;
};

struct AdapterSettings {
  bool enabled = false;
  std::vector<AdapterSource> modules;    // that the server starts with
  int64_t max_loras = 1;                 // in a step
  std::optional<int64_t> max_cpu_loras;  // in memory
  int64_t max_rank = 16;
  std::optional<ElementType> dtype;  // BF16 or F16, which is held as BF16; none: that of products
  std::vector<std::string> target_modules;  // as LoraOptions::target_modules
  // As LoraOptions::replaced_modules, beside those that `modules` replace.
  std::vector<std::string> modules_to_save;

  bool operator==(const AdapterSettings&) const = default;
};

}  // namespace sluice
