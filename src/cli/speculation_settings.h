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

// At most one of these proposes tokens.
struct Speculation {
  SpeculationConfig config;
  DraftConfig draft;
};

// Reads the keys of vLLM and of trtllm-serve. If this program lacks a method, logs that and uses no
// speculation; answers are the same. Downloads missing files of a draft model, with `hooks`.
// kInvalidArgument names the invalid key. `are_processes`: the model's ranks are processes; a draft
// model is then kUnsupported, before its weights are downloaded.
Result<Speculation> SpeculationOf(const options::Settings& settings, const DownloadHooks& hooks,
                                  bool are_processes);

// Returns the reason why `option` has no effect if its method does not exist in this program; ""
// for other options and methods. Whether a draft model is usable is determined later, from its
// files.
std::string UnknownSpeculation(const options::Settings& settings, const options::Option& option);

// Compares the tokens of both folders' tokenizers. Succeeds if a folder has no tokenizer.
// kInvalidArgument names the first difference.
Status CheckDraftTokens(const std::filesystem::path& target_folder,
                        const std::filesystem::path& draft_folder);

}  // namespace sluice::cli
