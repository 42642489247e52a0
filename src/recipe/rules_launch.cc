// Checks launch commands: wrong or contradictory options, and models that do not fit.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/json.h"
#include "options/dialect_table.h"
#include "recipe/findings.h"

namespace sluice {
namespace {

void CheckTwice(const LaunchFacts& launch, std::vector<Finding>& findings) {
  // Original spelling of each flag, by the flag without "no-".
  std::map<std::string, std::string> seen;
  for (const std::string& word : launch.launch.words) {
    if (!word.starts_with("--")) continue;
    std::string flag = word.substr(2, word.find('=') - 2);
    std::replace(flag.begin(), flag.end(), '_', '-');
    const std::string plain = flag.starts_with("no-") ? flag.substr(3) : flag;
    const auto [place, is_new] = seen.try_emplace(plain, flag);
    if (is_new) continue;
    findings.push_back(
        {place->second == flag ? Severity::kWarning : Severity::kError, launch.launch.line,
         "contradiction",
         place->second == flag
             ? fmt::format("--{} is given twice; the last one counts", flag)
             : fmt::format("--{} and --{} contradict each other; the last one counts",
                           place->second, flag)});
  }
}

void CheckSizes(const LaunchFacts& launch, std::vector<Finding>& findings) {
  const options::Settings& settings = *launch.settings;
  const auto error = [&](std::string text) {
    findings.push_back({Severity::kError, launch.launch.line, "contradiction", std::move(text)});
  };
  if (launch.max_num_batched_tokens < launch.max_num_seqs) {
    error(
        fmt::format("{} tokens a step are fewer than {} sequences a step, which need one each: "
                    "raise the first or lower the second",
                    launch.max_num_batched_tokens, launch.max_num_seqs));
  }
  // trtllm-serve does not chunk prompts by default.
  const bool chunks =
      launch.launch.dialect == options::Dialect::kTrtllm
          ? settings.Given("enable-chunked-prefill") && settings.Flag("enable-chunked-prefill")
          : settings.Flag("enable-chunked-prefill");
  if (!chunks && launch.max_model_len > launch.max_num_batched_tokens) {
    error(
        fmt::format("without chunked prefill a prompt must fit one step: {} tokens a step are "
                    "fewer than the {} of a whole context",
                    launch.max_num_batched_tokens, launch.max_model_len));
  }
  if (launch.stored && launch.stored->shape.max_positions > 0 &&
      launch.max_model_len > launch.stored->shape.max_positions) {
    error(fmt::format("a context of {} tokens is longer than the {} positions that {} supports",
                      launch.max_model_len, launch.stored->shape.max_positions,
                      launch.stored->shape.name));
  }
}

// Reports old names of compiler settings, which newer versions of vllm warn about or refuse.
void CheckCompilerKeys(const LaunchFacts& launch, std::vector<Finding>& findings) {
  const auto text = launch.settings->Text("compilation-config");
  if (!text) return;
  const auto config = json::Parse(*text);
  if (!config || !config->is_object()) return;
  for (const options::DialectKey& key : options::Dialects().compilation_keys) {
    if (key.earlier.empty()) continue;
    const json::Value* place = &*config;
    for (std::string_view rest = key.earlier; place != nullptr && !rest.empty();) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      place = place->Find(rest.substr(0, dot));
      rest.remove_prefix(std::min(dot + 1, rest.size()));
    }
    if (place == nullptr) continue;
    findings.push_back(
        {Severity::kNote, launch.launch.line, "old-name",
         fmt::format("--compilation-config {} is now called {}", key.earlier, key.name)});
  }
}

void CheckRetired(const LaunchFacts& launch, std::vector<Finding>& findings) {
  for (const options::Assignment* given : launch.settings->given()) {
    if (given->option->retired.empty()) continue;
    findings.push_back({Severity::kNote, launch.launch.line, "old-name",
                        fmt::format("{} was retired {}", given->origin, given->option->retired)});
  }
}

// `elsewhere`: whether the weights fit on another accelerator that the recipe covers.
void CheckFits(const LaunchFacts& launch, const Accelerator& accelerator, bool elsewhere,
               std::vector<Finding>& findings) {
  const StoredModel& stored = *launch.stored;
  const auto add = [&](Severity severity, std::string text) {
    findings.push_back({severity, launch.launch.line, "memory", std::move(text)});
  };
  const double cache = KvCacheBytesOf(launch, accelerator);
  const double tokens = cache / static_cast<double>(KvBytesPerToken(stored));
  if (cache <= 0) {
    add(elsewhere ? Severity::kWarning : Severity::kError,
        fmt::format("{} takes {:.1f} GB of weights and leaves no cache on {} ({:.0f} GB)",
                    launch.model, ResidentBytes(stored) / kGB, DevicesText(launch, accelerator),
                    static_cast<double>(launch.devices_each * accelerator.memory_bytes) / kGB));
  } else if (launch.max_model_len > 0 && tokens < static_cast<double>(launch.max_model_len)) {
    add(Severity::kError,
        fmt::format("on {} the cache of {:.1f} GB holds {:.0f} tokens, fewer than one context of "
                    "{} (--max-model-len): {} refuses to start",
                    DevicesText(launch, accelerator), cache / kGB, tokens, launch.max_model_len,
                    launch.launch.program));
  } else if (launch.settings->Given("max-num-seqs") && launch.max_model_len > 0 &&
             static_cast<int64_t>(tokens) / launch.max_model_len < launch.max_num_seqs) {
    add(Severity::kNote, fmt::format("on {} {} sequences of {} tokens fit the cache of {:.1f} GB; "
                                     "the rest of {} wait if all are that long",
                                     DevicesText(launch, accelerator),
                                     static_cast<int64_t>(tokens) / launch.max_model_len,
                                     launch.max_model_len, cache / kGB, launch.max_num_seqs));
  }
}

}  // namespace

void CheckLaunches(const RecipeFacts& facts, std::vector<Finding>& findings) {
  for (const LaunchFacts& launch : facts.launches) {
    if (launch.model.empty() && !launch.is_options_file) {
      findings.push_back(
          {Severity::kError, launch.launch.line, "launch", "the launch names no model"});
    }
    CheckTwice(launch, findings);
    if (!launch.settings) {
      for (const std::string& error : launch.errors)
        findings.push_back({Severity::kError, launch.launch.line, "option", error});
      continue;
    }
    CheckSizes(launch, findings);
    CheckCompilerKeys(launch, findings);
    CheckRetired(launch, findings);
    if (!launch.stored) continue;
    const bool elsewhere =
        std::any_of(facts.accelerators.begin(), facts.accelerators.end(),
                    [&](const Accelerator* each) { return KvCacheBytesOf(launch, *each) > 0; });
    for (const Accelerator* accelerator : facts.accelerators)
      CheckFits(launch, *accelerator, elsewhere, findings);
  }
}

}  // namespace sluice
