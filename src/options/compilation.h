// What vLLM's --compilation-config asks for, and what becomes of it here.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "options/settings.h"

namespace sluice::options {

struct CompilationKey {
  std::string_view key;   // "pass_config.fuse_norm_quant"
  std::string_view old;   // its earlier name, with its own path; "" where there is none
  std::string_view here;  // what it does here
};
std::span<const CompilationKey> CompilationKeys();

// One note for each key that was given; an unknown one is a warning.
std::vector<Note> CompilationNotes(const Settings& settings);

}  // namespace sluice::options
