// From resolved options to the configurations of the engine and the server. Words become enums
// here.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/engine_config.h"
#include "options/settings.h"
#include "server/server_config.h"

namespace sluice::cli {

// The name of the model and the location of its files.
struct ModelArgument {
  std::string name;      // as given, without a trailing slash
  std::string as_given;  // with it
  std::filesystem::path folder;
  std::filesystem::path tokenizer_folder;  // of --tokenizer, else `folder`
};

// The positional word or --model. kInvalidArgument if there is none; otherwise as ResolveModel.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings);
// The same for the model called `name`, whatever the positional words are.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, std::string name);
// Whether a model is named, for commands that do not need one.
bool HasModelArgument(const options::Settings& settings);

// What an option like --activation-format says.
ModelOptions::ActivationRounding ActivationRoundingOf(const options::Settings& settings,
                                                      std::string_view option);

Result<EngineConfig> MakeEngineConfig(const options::Settings& settings,
                                      const ModelArgument& model);
// The part of the configuration that all commands with a server have in common; AddServeOptions
// adds the options of `sluice serve`.
ServerConfig MakeServerConfig(const options::Settings& settings, const ModelArgument& model);
void AddServeOptions(const options::Settings& settings, ServerConfig& config);

}  // namespace sluice::cli
