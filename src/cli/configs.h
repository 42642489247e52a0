// Converts resolved options to the configurations of the engine and the server. Converts words to
// enums.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/engine_config.h"
#include "events/event_settings.h"
#include "hub/fetch.h"
#include "options/settings.h"
#include "server/server_config.h"

namespace sluice::cli {

// The name of the model, and where its files are.
struct ModelArgument {
  std::string name;      // without a trailing slash
  std::string as_given;  // possibly with a trailing slash
  std::filesystem::path folder;
  std::filesystem::path tokenizer_folder;  // folder of --tokenizer, else `folder`
};

// Callbacks around a download. Progress is shown in any case.
struct DownloadHooks {
  std::function<Status()> before = nullptr;  // called before the network is used
  std::function<void(const FetchProgress&)> on_progress = nullptr;
};

// Finds the model that the first positional argument or --model names. Downloads missing files of a
// model id, with progress. kInvalidArgument if there is no model; otherwise errors as in
// FetchModel.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings,
                                           const DownloadHooks& hooks = {});
// Like the function above, for commands that need only `part` of the model.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, ModelPart part);
// Like the function above, for the model called `name`; ignores the positional arguments.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, std::string name,
                                           const DownloadHooks& hooks = {});
// Returns the folder of the model called `name`. Downloads only `part`.
Result<ResolvedModel> FetchNamedModel(const options::Settings& settings, const std::string& name,
                                      const std::string& revision, ModelPart part, bool update,
                                      const DownloadHooks& hooks);
// Returns the model's name without searching for its files; folders are empty. The name is "" if
// none is given.
ModelArgument NamedModel(const options::Settings& settings);
// Whether a model is given, for commands that do not need one.
bool HasModelArgument(const options::Settings& settings);

// Returns the value of an option such as --activation-format.
ModelOptions::ActivationRounding ActivationRoundingOf(const options::Settings& settings,
                                                      std::string_view option);

// Returns --quantization and --head-format.
LoadQuantization LoadQuantizationOf(const options::Settings& settings);

// Returns the engines of --data-parallel-size that this process runs. REQUIRES: CheckSettings has
// passed.
struct EnginesHere {
  int count = 1;
  int first = 0;  // index of the first engine
};
EnginesHere EnginesOf(const options::Settings& settings);

// Makes the engine's configuration. Downloads missing files of other models that the settings name,
// with `hooks`. `are_processes`: the model's ranks are processes, with which some settings are
// kUnsupported.
Result<EngineConfig> MakeEngineConfig(const options::Settings& settings, const ModelArgument& model,
                                      const DownloadHooks& hooks = {}, bool are_processes = false);
// Returns --kv-events-config; nullopt: nothing is published.
Result<std::optional<CacheEventSettings>> CacheEventsOf(const options::Settings& settings);

// Returns the configuration that all commands with a server share. AddServeOptions adds the options
// of `sluice serve`.
ServerConfig MakeServerConfig(const options::Settings& settings, const ModelArgument& model);
void AddServeOptions(const options::Settings& settings, ServerConfig& config);
// Sets whether the engine of `sluice serve` may sleep, and whether its weights may be replaced.
Status AddServeOptions(const options::Settings& settings, EngineConfig& config);

}  // namespace sluice::cli
