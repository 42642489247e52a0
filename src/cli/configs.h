// From resolved options to what the engine and the server take.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/engine_config.h"
#include "options/settings.h"
#include "server/server_config.h"

namespace sluice::cli {

// What the user calls the model, and where its files are.
struct ModelArgument {
  std::string name;      // as given, without a slash at the end
  std::string as_given;  // with it
  std::filesystem::path folder;
  std::filesystem::path tokenizer_folder;  // of --tokenizer, else `folder`
};

// The positional word or --model. kInvalidArgument if there is none; otherwise as ResolveModel.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings);
// The same for the model called `name`, whatever the positional words are.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, std::string name);
// The same for a command that can do without a model.
bool HasModelArgument(const options::Settings& settings);

Result<EngineConfig> MakeEngineConfig(const options::Settings& settings,
                                      const ModelArgument& model);
// What every command with a server has; `sluice serve` adds its own options.
ServerConfig MakeServerConfig(const options::Settings& settings, const ModelArgument& model);
void AddServeOptions(const options::Settings& settings, ServerConfig& config);

}  // namespace sluice::cli
