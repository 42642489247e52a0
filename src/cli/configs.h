// From resolved options to the configurations of the engine and the server. Words become enums
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
  std::string name;      // as given, without a trailing slash
  std::string as_given;  // with it
  std::filesystem::path folder;
  std::filesystem::path tokenizer_folder;  // of --tokenizer, else `folder`
};

// Callbacks around a download, besides showing its progress.
struct DownloadHooks {
  std::function<Status()> before = nullptr;  // before the network is used
  std::function<void(const FetchProgress&)> on_progress = nullptr;
};

// The positional word or --model. kInvalidArgument if there is none; otherwise as FetchModel: what
// is missing of a model id is downloaded, and progress is shown.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings,
                                           const DownloadHooks& hooks = {});
// The same of which only `part` is needed.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, ModelPart part);
// The same for the model called `name`, whatever the positional words are.
Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, std::string name,
                                           const DownloadHooks& hooks = {});
// The folder of the model called `name`, of which `part` is needed.
Result<ResolvedModel> FetchNamedModel(const options::Settings& settings, const std::string& name,
                                      const std::string& revision, ModelPart part, bool update,
                                      const DownloadHooks& hooks);
// The model's name without looking for it; its folders are empty. "" if none is named.
ModelArgument NamedModel(const options::Settings& settings);
// Whether a model is named, for commands that do not need one.
bool HasModelArgument(const options::Settings& settings);

// What an option like --activation-format says.
ModelOptions::ActivationRounding ActivationRoundingOf(const options::Settings& settings,
                                                      std::string_view option);

// --quantization and --head-format.
LoadQuantization LoadQuantizationOf(const options::Settings& settings);

// This process's share of the engines of --data-parallel-size. REQUIRES: CheckSettings passed.
struct EnginesHere {
  int count = 1;
  int first = 0;  // the number of the first
};
EnginesHere EnginesOf(const options::Settings& settings);

// What is missing of other models that the settings name is downloaded, with `hooks`.
// `are_processes`: the model's ranks are, which some settings do not go with: kUnsupported.
Result<EngineConfig> MakeEngineConfig(const options::Settings& settings, const ModelArgument& model,
                                      const DownloadHooks& hooks = {}, bool are_processes = false);
// --kv-events-config; none: nothing is published.
Result<std::optional<CacheEventSettings>> CacheEventsOf(const options::Settings& settings);

// The part of the configuration that all commands with a server have in common; AddServeOptions
// adds the options of `sluice serve`.
ServerConfig MakeServerConfig(const options::Settings& settings, const ModelArgument& model);
void AddServeOptions(const options::Settings& settings, ServerConfig& config);
// Sets whether the engine of `sluice serve` may sleep, and its weights be replaced.
Status AddServeOptions(const options::Settings& settings, EngineConfig& config);

}  // namespace sluice::cli
