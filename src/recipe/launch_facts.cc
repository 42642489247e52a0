#include "recipe/launch_facts.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/scratch_folder.h"
#include "options/dialect_notes.h"
#include "options/sources.h"

namespace sluice {
namespace {

using options::Effect;

constexpr double kDefaultFraction = 0.9;  // for vllm and trtllm-serve

std::string WithoutSlash(std::string name) {
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name;
}

// Writes a file of the recipe to `folder`. Returns its path; "" if it cannot be written.
std::string WriteFile(const std::filesystem::path& folder, const std::string& name,
                      const std::string& text) {
  const std::filesystem::path file = folder / std::filesystem::path(name).filename();
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  stream.close();
  return stream ? file.string() : "";
}

// Replaces names of the recipe's files in `words` by paths.
void PointToFiles(std::vector<std::string>& words, const RecipeCommands& commands,
                  const std::filesystem::path& folder, const Result<ScratchFolder>& scratch) {
  std::error_code ignored;
  for (size_t i = 1; i < words.size(); ++i) {
    std::string flag = words[i - 1];
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (flag != "--config" && flag != "--extra-llm-api-options") continue;
    if (const auto shown = commands.files.find(words[i]); shown != commands.files.end()) {
      if (!scratch) continue;
      if (std::string path = WriteFile(scratch->path(), words[i], shown->second); !path.empty())
        words[i] = std::move(path);
    } else if (std::filesystem::exists(folder / words[i], ignored)) {
      words[i] = (folder / words[i]).string();
    }
  }
}

// Returns the assignment as the user wrote it. Files appear without their folder, which may be
// temporary.
std::string Given(const options::Assignment& assignment) {
  std::string text = assignment.origin;
  if (assignment.source == options::Source::kYaml)
    text = fmt::format("{} {}", std::filesystem::path(text).filename().string(),
                       assignment.option->name);
  if (assignment.option->type == options::Type::kFlag && text.starts_with("--")) return text;
  for (const std::string& word : assignment.words) {
    text += ' ';
    text += assignment.option->name == "config" ? std::filesystem::path(word).filename().string()
                                                : word;
  }
  return text;
}

OptionFact Explain(const options::Settings& settings, const options::Assignment& assignment,
                   const IdleFinder& find_idle) {
  const options::Option& option = *assignment.option;
  // An option of kind kRefused is refused only for some values, and this value was accepted.
  Effect effect = option.effect;
  if (effect == Effect::kRefused)
    effect = options::IsIdle(option, assignment.words) ? Effect::kNoEffect : Effect::kActs;
  if (effect == Effect::kActs && find_idle) {
    if (std::string reason = find_idle(settings, option); !reason.empty())
      return {Given(assignment), std::string(EffectName(Effect::kNoEffect)), std::move(reason)};
  }
  const bool acts = effect == Effect::kActs;
  OptionFact fact{Given(assignment), std::string(EffectName(effect)),
                  std::string(acts ? option.help : option.reason)};
  if (!option.retired.empty()) {
    fact.effect = acts ? "retired" : "retired, " + fact.effect;
    fact.text += fmt::format(" (retired {})", option.retired);
  }
  return fact;
}

std::vector<OptionFact> ExplainAll(const options::Settings& settings,
                                   const std::map<std::string, std::string>& environment,
                                   const IdleFinder& find_idle) {
  std::vector<OptionFact> facts;
  for (const options::Assignment* assignment : settings.given())
    facts.push_back(Explain(settings, *assignment, find_idle));
  for (const options::Note& note : settings.notes()) {
    OptionFact fact{note.what, "no effect", note.text};
    if (note.kind == options::Note::Kind::kMapped) fact.effect = "mapped";
    if (note.kind == options::Note::Kind::kWarning) fact.effect = "warning";
    facts.push_back(std::move(fact));
  }
  for (const auto& [name, value] : environment) {
    const auto mentions = [&, &variable = name](const OptionFact& fact) {
      return fact.given == variable || fact.given.starts_with(variable + " ");
    };
    if (std::any_of(facts.begin(), facts.end(), mentions)) continue;
    OptionFact fact{fmt::format("{}={}", name, value), "no effect",
                    "this program does not read it"};
    if (const options::DialectKey* variable = options::FindVariable(name)) {
      fact.effect = EffectName(variable->effect);
      fact.text = variable->text;
    }
    facts.push_back(std::move(fact));
  }
  return facts;
}

constexpr size_t kMostErrors = 20;

// Removes options whose value is the output of a command, which is unknown.
std::vector<std::string> WithoutUnknown(const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_flag = words[i].starts_with("--");
    if (is_flag && words[i].find("$(") != std::string::npos) continue;
    if (is_flag && words[i].find('=') == std::string::npos && i + 1 < words.size() &&
        words[i + 1].find("$(") != std::string::npos) {
      ++i;
      continue;
    }
    known.push_back(words[i]);
  }
  return known;
}

// Removes the option that an error is about, with its values, from a launch's words. Returns false
// if the option cannot be identified.
bool LeaveOut(const Error& error, std::vector<std::string>& words) {
  const auto written_flag = [](const std::string& word) { return word.substr(0, word.find('=')); };
  const auto is_flag = [](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
  };
  // Finds the longest flag that the message names: --max-model is not --max-model-len.
  size_t found = words.size();
  for (size_t i = 0; i < words.size(); ++i) {
    if (!is_flag(words[i])) continue;
    const std::string written = written_flag(words[i]);
    std::string flag = written;
    std::replace(flag.begin(), flag.end(), '_', '-');
    const bool is_named = error.message.find(written) != std::string::npos ||
                          (!error.param.empty() && flag == "--" + error.param);
    if (is_named && (found == words.size() || written.size() > written_flag(words[found]).size())) {
      found = i;
    }
  }
  if (found == words.size()) return false;
  size_t end = found + 1;
  if (words[found].find('=') == std::string::npos) {
    while (end < words.size() && !is_flag(words[end])) ++end;
  }
  words.erase(words.begin() + static_cast<std::ptrdiff_t>(found),
              words.begin() + static_cast<std::ptrdiff_t>(end));
  return true;
}

int64_t KvElementBytes(const options::Settings& settings) {
  return settings.TextOr("kv-cache-dtype").starts_with("fp8") ? 1 : 2;
}

}  // namespace

LaunchFacts ExamineLaunch(const RecipeLaunch& launch, const RecipeCommands& commands,
                          const std::filesystem::path& folder, const ShapeFinder& find_shape,
                          const IdleFinder& find_idle) {
  LaunchFacts facts;
  facts.launch = launch;
  // The first word is the model even if the options are wrong.
  if (!launch.words.empty() && !launch.words[0].starts_with('-'))
    facts.model = WithoutSlash(launch.words[0]);
  const Result<ScratchFolder> scratch = ScratchFolder::Make("sluice-recipe");
  std::vector<std::string> words = WithoutUnknown(launch.words);
  PointToFiles(words, commands, folder, scratch);
  auto resolved = options::Resolve(words, launch.environment, options::kServe, launch.dialect);
  // Removes wrong options one after another, so that later errors are also found.
  while (!resolved && facts.errors.size() < kMostErrors) {
    facts.errors.push_back(resolved.error().message);
    if (!LeaveOut(resolved.error(), words)) break;
    resolved = options::Resolve(words, launch.environment, options::kServe, launch.dialect);
  }
  if (resolved && facts.errors.empty()) {
    facts.settings = resolved->settings;
    const options::Settings& settings = *facts.settings;
    if (settings.Given("model")) facts.model = WithoutSlash(settings.TextOr("model"));
    if (!settings.positionals().empty()) facts.model = WithoutSlash(settings.positionals()[0]);
    facts.options = ExplainAll(settings, launch.environment, find_idle);
    facts.max_num_seqs = settings.Integer("max-num-seqs").value_or(0);
    facts.max_num_batched_tokens = settings.Integer("max-num-batched-tokens").value_or(0);
    facts.max_model_len = std::max<int64_t>(settings.Integer("max-model-len").value_or(0), 0);
    const auto count = [&](const char* name) {
      return std::max<int64_t>(settings.Integer(name).value_or(1), 1);
    };
    facts.devices_each = count("tensor-parallel-size") * count("pipeline-parallel-size");
    facts.copies = count("data-parallel-size");
  }
  auto shape = PublishedShape(facts.model);
  if (!shape && !facts.model.empty()) shape = find_shape(facts.model);
  if (!shape) return facts;
  facts.stored = StoredModel{*shape, FormatOfName(facts.model),
                             facts.settings ? KvElementBytes(*facts.settings) : 2};
  if (facts.max_model_len == 0) facts.max_model_len = shape->max_positions;
  return facts;
}

Accelerator DevicesOf(const LaunchFacts& facts, const Accelerator& accelerator) {
  Accelerator all = accelerator;
  all.memory_bytes *= facts.devices_each;
  all.system_bytes *= facts.devices_each;
  all.bytes_per_second *= static_cast<double>(facts.devices_each);
  return all;
}

std::string DevicesText(const LaunchFacts& facts, const Accelerator& accelerator) {
  const int64_t all = facts.devices_each * facts.copies;
  if (all == 1) return fmt::format("one {}", accelerator.name);
  if (facts.copies == 1) return fmt::format("{} {}", all, accelerator.name);
  return fmt::format("{} {} ({} copies on {} each)", all, accelerator.name, facts.copies,
                     facts.devices_each);
}

double KvCacheBytesOf(const LaunchFacts& facts, const Accelerator& one,
                      std::optional<double> fraction) {
  const Accelerator accelerator = DevicesOf(facts, one);
  if (!fraction && facts.settings) fraction = facts.settings->Number("gpu-memory-utilization");
  const double share = fraction.value_or(kDefaultFraction);
  if (facts.launch.dialect == options::Dialect::kTrtllm)
    return KvCacheBytes(*facts.stored, accelerator, share);
  // The share of the memory that the launch does not use includes the operating system's memory.
  const auto memory = static_cast<double>(accelerator.memory_bytes);
  const double left =
      std::max(memory * (1 - share) - static_cast<double>(accelerator.system_bytes), 0.0);
  return std::max(0.0, KvCacheBytes(*facts.stored, accelerator, 1.0) - left);
}

}  // namespace sluice
