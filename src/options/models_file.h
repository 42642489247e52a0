// Reads the file of --models, which lists the models that one server serves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::options {

// An entry of the file.
struct ModelEntry {
  std::string name;  // the name that requests give as `model`
  std::string path;  // a folder, a model id, or the URL of the model's page
  std::vector<Assignment> options;
  bool is_pinned = false;  // whether it is loaded at the start and never unloaded
  int64_t priority = 0;    // models with a higher priority are loaded first and unloaded last
  std::string place;       // position in the file: "models.yaml:3"
};

inline constexpr size_t kMostModels = 256;

// Reads a file such as
//
//   models:
//   - name: small
//     path: org/name
//     options: {max-model-len: 4096}
//     pinned: true
//     priority: 1
//
// kInvalidArgument, with file and line, for: invalid YAML; an unknown or duplicate key; a value of
// a wrong type; an entry without name or path; a duplicate name; a file without models.
Result<std::vector<ModelEntry>> ReadModelsFile(const std::filesystem::path& file, Commands commands,
                                               Dialect dialect);

}  // namespace sluice::options
