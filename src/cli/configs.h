// Converts resolved options to the configurations of the engine and the server. Words become enums
// here.
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

// The name of the model and the location of its files.
struct ModelArgument {
  std::string name;      // without a trailing slash
  std::string as_given;  // possibly with one
  std::filesystem::path folder;
  std::filesystem::path tokenizer_folder;  // of --tokenizer, else `folder`
};

// Callbacks around a download, besides showing its progress.
struct DownloadHooks {
  std::function<Status()> before = nullptr;  // before the network is used
  std::function<void(const FetchProgress&)> on_progress = nullptr;
};

// The model that the first positional word or --model names. kInvalidArgument if there is none;
// otherwise errors as in FetchModel. Downloads missing files of a model id, with progress.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings,
                                           const DownloadHooks& hooks = {});
// The same, for commands that need only `part` of the model.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, ModelPart part);
// The same for the model called `name`, ignoring the positional words.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, std::string name,
                                           const DownloadHooks& hooks = {});
// The folder of the model called `name`; fetches only `part`.
Result<ResolvedModel> FetchNamedModel(const options::Settings& settings, const std::string& name,
                                      const std::string& revision, ModelPart part, bool update,
                                      const DownloadHooks& hooks);
// The model's name, without searching for it; its folders are empty. "" if none is given.
ModelArgument NamedModel(const options::Settings& settings);
// Whether a model is given, for commands that do not need one.
bool HasModelArgument(const options::Settings& settings);

// The value of an option like --activation-format.
ModelOptions::ActivationRounding ActivationRoundingOf(const options::Settings& settings,
                                                      std::string_view option);

// --quantization and --head-format.
LoadQuantization LoadQuantizationOf(const options::Settings& settings);

// Which engines of --data-parallel-size this process runs. REQUIRES: CheckSettings passed.
struct EnginesHere {
  int count = 1;
  int first = 0;  // number of the first engine
};
EnginesHere EnginesOf(const options::Settings& settings);

// Downloads missing files of other models that the settings name, with `hooks`. `are_processes`:
// the model's ranks are processes, with which some settings are kUnsupported.
Result<EngineConfig> MakeEngineConfig(const options::Settings& settings, const ModelArgument& model,
                                      const DownloadHooks& hooks = {}, bool are_processes = false);
// --kv-events-config; nullopt: nothing is published.
Result<std::optional<CacheEventSettings>> CacheEventsOf(const options::Settings& settings);

// The configuration common to all commands with a server; AddServeOptions adds the options of
// `sluice serve`.
ServerConfig MakeServerConfig(const options::Settings& settings, const ModelArgument& model);
void AddServeOptions(const options::Settings& settings, ServerConfig& config);
// Sets whether the engine of `sluice serve` may sleep, and whether its weights may be replaced.
Status AddServeOptions(const options::Settings& settings, EngineConfig& config);

}  // namespace sluice::cli
