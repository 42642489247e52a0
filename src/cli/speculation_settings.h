// Reads --speculative-config and its shorter spellings.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "cli/configs.h"
#include "options/settings.h"
#include "speculation/draft_config.h"
#include "speculation/speculation_config.h"

namespace sluice::cli {

// At most one of them proposes tokens.
struct Speculation {
  SpeculationConfig config;
  DraftConfig draft;
};

// Reads the keys of vLLM and of trtllm-serve. A method that this program does not have is
// logged, and nothing is speculated: the answers are the same. What is missing of a draft model is
// downloaded, with `hooks`. kInvalidArgument names the key that is wrong. `are_processes`: the
// model's ranks are; a draft model is then kUnsupported, before its weights are downloaded.
Result<Speculation> SpeculationOf(const options::Settings& settings, const DownloadHooks& hooks,
                                  bool are_processes);

// Why `option` proposes nothing, where it asks for a method that this program does not have: "" for
// other options and methods. A draft model whose files show what it is is found out later.
std::string UnknownSpeculation(const options::Settings& settings, const options::Option& option);

// Whether both folders' tokenizers have the same tokens; true where one has none.
// kInvalidArgument names the first that differs.
Status CheckDraftTokens(const std::filesystem::path& target_folder,
                        const std::filesystem::path& draft_folder);

}  // namespace sluice::cli
