#include "cli/speculation_settings.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/configs.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kOption = "speculative-config";
// vLLM limits the number of cached answers. This program limits their tokens instead: 256 for each
// such answer, at most 12 MiB in total.
constexpr int64_t kTokensOfAnAnswer = 256;
constexpr int64_t kMostCachedTokens = int64_t{1} << 20;

tl::unexpected<Error> Bad(std::string_view key, std::string_view expected,
                          const json::Value& found) {
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--{}: {}: expected {}, found {}", kOption, key, expected, json::Write(found)),
      std::string(kOption));
}

// Reads the keys of an object and records which were read.
class Keys {
 public:
  explicit Keys(const json::Value& object) : object_(object) {}

  const json::Value* Find(std::string_view key) {
    read_.emplace_back(key);
    const json::Value* value = object_.Find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  Result<std::optional<int>> Count(std::string_view key, int most) {
    const json::Value* value = Find(key);
    if (value == nullptr) return std::optional<int>();
    if (!value->is_integer() || value->as_integer() < 1 || value->as_integer() > most)
      return Bad(key, fmt::format("a whole number in [1, {}]", most), *value);
    return static_cast<int>(value->as_integer());
  }
  Result<std::string> Text(std::string_view key) {
    const json::Value* value = Find(key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return Bad(key, "a text", *value);
    return value->as_string();
  }
  Status Number(std::string_view key, double least, double most, double& number) {
    const json::Value* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_number() || value->as_double() < least || value->as_double() > most)
      return Bad(key, fmt::format("a number in [{}, {}]", least, most), *value);
    number = value->as_double();
    return {};
  }
  void WarnOfOthers() const {
    for (const auto& [key, value] : object_.as_object()) {
      if (std::ranges::find(read_, key) != read_.end()) continue;
      LOG_WARNING("options", "--{}: {} has no effect", kOption, key);
    }
  }

 private:
  const json::Value& object_;
  std::vector<std::string> read_;
};

// Returns the value of a setting with two spellings, under the spelling that is given.
Result<std::optional<int>> Either(Keys& keys, std::string_view key, std::string_view other,
                                  int most) {
  ASSIGN_OR_RETURN(const std::optional<int> value, keys.Count(key, most));
  ASSIGN_OR_RETURN(const std::optional<int> second, keys.Count(other, most));
  return value ? value : second;
}

Status ReadNgram(Keys& keys, SpeculationConfig& config) {
  constexpr int kMost = kMaxSpeculativeTokens;
  ASSIGN_OR_RETURN(const std::optional<int> most,
                   Either(keys, "prompt_lookup_max", "max_matching_ngram_size", kMost));
  ASSIGN_OR_RETURN(const std::optional<int> least, keys.Count("prompt_lookup_min", kMost));
  config.lookup_max = most.value_or(least.value_or(config.lookup_max));
  config.lookup_min = least.value_or(most.value_or(config.lookup_min));
  if (config.lookup_min > config.lookup_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: prompt_lookup_min is {}, more than prompt_lookup_max, {}",
                            kOption, config.lookup_min, config.lookup_max),
                std::string(kOption));
  }
  return {};
}

Status ReadSuffix(Keys& keys, SpeculationConfig& config) {
  ASSIGN_OR_RETURN(const std::optional<int> depth,
                   keys.Count("suffix_decoding_max_tree_depth", kMaxSpeculativeTokens));
  config.lookup_max = std::max(2, depth.value_or(24));
  config.lookup_min = 2;
  RETURN_IF_ERROR(keys.Number("suffix_decoding_max_spec_factor", 0, 1000, config.max_spec_factor));
  RETURN_IF_ERROR(keys.Number("suffix_decoding_min_token_prob", 0, 1, config.min_token_prob));
  double answers = 10000;
  RETURN_IF_ERROR(keys.Number("suffix_decoding_max_cached_requests", 0, 1e9, answers));
  config.cached_tokens =
      std::min(kMostCachedTokens, static_cast<int64_t>(answers) * kTokensOfAnAnswer);
  return {};
}

// For a model whose name or config.json shows that it reads the target's hidden states, returns the
// method, such as "eagle"; "" for an independent model.
std::string HiddenStateMethod(std::string_view text) {
  constexpr std::array kMethods = {"eagle3", "eagle",  "medusa",     "mlp_speculator",
                                   "dflash", "dspark", "speculator", "mtp"};
  const std::string lower = AsciiLower(text);
  for (const char* method : kMethods) {
    if (lower.find(method) != std::string::npos) return method;
  }
  return "";
}

// Whether `method` is one of vLLM's names for layers in the model's own checkpoint: "mtp",
// "deepseek_mtp", ...
bool IsMtp(const std::string& method) {
  return method == "mtp" || method.ends_with("_mtp");
}

// Returns the text in a folder's config.json that shows the model's kind.
std::string KindOf(const std::filesystem::path& folder) {
  const auto text = ReadFile(folder / "config.json");
  if (!text) return "";  // this error is reported when the model is loaded
  const auto config = json::Parse(*text);
  if (!config || !config->is_object()) return "";
  std::string kind;
  for (const char* key : {"architectures", "model_type", "speculators_model_type"}) {
    if (const json::Value* value = config->Find(key); value != nullptr) kind += json::Write(*value);
  }
  return kind;
}

// Finds the draft model's files. Downloads its weights only if it can be used.
Status FindDraft(const options::Settings& settings, Keys& keys, const std::string& model,
                 const DownloadHooks& hooks, bool are_processes, DraftConfig& draft) {
  if (model.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: model is missing: give the folder or id of a draft model (a "
                            "smaller model with the same vocabulary) or of a head",
                            kOption),
                std::string(kOption));
  }
  ASSIGN_OR_RETURN(const std::string revision, keys.Text("revision"));
  const bool needs_weights = settings.TextOr("load-format") != "dummy" && !are_processes;
  auto found = FetchNamedModel(settings, model, revision,
                               needs_weights ? ModelPart::kAll : ModelPart::kAllButWeights,
                               /*update=*/false, hooks);
  if (!found)
    return tl::unexpected(std::move(found).error().In(fmt::format("--{}: model", kOption)));
  draft.folder = found->folder;
  return {};
}

tl::unexpected<Error> DraftOfProcesses() {
  return Fail(ErrorCode::kUnsupported,
              fmt::format("--{}: draft models are not supported with ranks in separate processes: "
                          "use method ngram or suffix, or omit the ranks",
                          kOption),
              std::string(kOption));
}

// Logs that speculation is off, and why.
Speculation SpeculateNothing(const std::string& reason) {
  LOG_WARNING("options", "--{}: {}: tokens are generated one at a time, and answers are the same",
              kOption, reason);
  return Speculation();
}

Status ReadDraft(Keys& keys, DraftConfig& draft) {
  constexpr int kMostTokens = 1 << 30;
  ASSIGN_OR_RETURN(const std::optional<int> longest, keys.Count("max_model_len", kMostTokens));
  if (longest) draft.max_model_len = *longest;
  ASSIGN_OR_RETURN(draft.quantization, keys.Text("quantization"));
  if (const json::Value* value = keys.Find("adaptive"); value != nullptr) {
    if (!value->is_bool()) return Bad("adaptive", "true or false", *value);
    draft.adaptive = value->as_bool();
  }
  return {};
}

// Combines --speculative-config and its shorter spellings into one object; empty if none is given.
Result<json::Value> SpeculationObject(const options::Settings& settings) {
  ASSIGN_OR_RETURN(json::Value object, json::Parse(settings.TextOr(kOption, "{}")));
  if (const auto method = settings.Text("spec-method")) object.Set("method", *method);
  if (const auto tokens = settings.Integer("spec-tokens"))
    object.Set("num_speculative_tokens", *tokens);
  if (const auto model = settings.Text("spec-model")) object.Set("model", *model);
  return object;
}

// Returns the number of tokens to propose at a time. The default is one for a model's own draft
// layers, because only one such layer exists.
Result<std::optional<int>> ReadNumTokens(Keys& keys, bool is_mtp) {
  constexpr int kMost = kMaxSpeculativeTokens;
  ASSIGN_OR_RETURN(std::optional<int> tokens,
                   Either(keys, "num_speculative_tokens", "max_draft_len", kMost));
  if (!is_mtp) return tokens;
  ASSIGN_OR_RETURN(const std::optional<int> layers, keys.Count("num_nextn_predict_layers", kMost));
  if (!tokens) tokens = layers.value_or(1);
  return tokens;
}

struct MethodChoice {
  std::string method, model;  // "" if not given
  bool is_named = false;      // whether the method was given explicitly, not derived from the
                              // model's name
};

Result<MethodChoice> ReadMethod(Keys& keys) {
  MethodChoice choice;
  ASSIGN_OR_RETURN(choice.method, keys.Text("method"));
  ASSIGN_OR_RETURN(const std::string type, keys.Text("decoding_type"));
  ASSIGN_OR_RETURN(choice.model, keys.Text("model"));
  for (const char* key : {"speculative_model_dir", "speculative_model"}) {
    if (!choice.model.empty()) break;
    ASSIGN_OR_RETURN(choice.model, keys.Text(key));
  }
  std::string& method = choice.method;
  if (method.empty()) method = AsciiLower(type);
  if (method == "draft_target" || method == "drafttarget") method = "draft_model";
  if (method.empty() && (choice.model == "ngram" || choice.model == "[ngram]")) method = "ngram";
  choice.is_named = !method.empty();
  if (!choice.is_named && !choice.model.empty())
    method = HiddenStateMethod(std::filesystem::path(choice.model).filename().string());
  return choice;
}

bool IsKnown(const std::string& method) {
  return method == "ngram" || method == "suffix" || method == "draft_model" || method == "eagle3" ||
         method == "eagle" || method == "dflash" || IsMtp(method);
}

// Returns the feature that this program lacks for a method that other servers have; "" if the
// method is unknown.
std::string_view LackFor(std::string_view method) {
  if (method == "dspark")
    return " (it drafts a block of tokens in one pass, and corrects each by the tokens before it)";
  if (method == "medusa") return " (it has a head for each of the next tokens)";
  if (method == "mlp_speculator") return " (it drafts by an MLP over the last hidden state)";
  return "";
}

std::string UnknownMethod(const std::string& method) {
  return fmt::format(
      "{}{} is not a supported method (ngram, suffix, draft_model, eagle3, dflash or mtp): tokens "
      "are generated one at a time, and answers are the same",
      method.empty() ? "none" : method, LackFor(method));
}

}  // namespace

std::string UnknownSpeculation(const options::Settings& settings, const options::Option& option) {
  constexpr std::array<std::string_view, 4> kOptions = {kOption, "spec-method", "spec-model",
                                                        "spec-tokens"};
  if (std::ranges::find(kOptions, option.name) == kOptions.end()) return "";
  const auto object = SpeculationObject(settings);
  if (!object || object->as_object().empty()) return "";
  Keys keys(*object);
  const auto choice = ReadMethod(keys);
  // SpeculationOf reports errors. It also derives the method from a model that is given without
  // one.
  if (!choice || IsKnown(choice->method) || (choice->method.empty() && !choice->model.empty()))
    return "";
  return UnknownMethod(choice->method);
}

Status CheckDraftTokens(const std::filesystem::path& target_folder,
                        const std::filesystem::path& draft_folder) {
  constexpr const char* kFile = "tokenizer.json";
  const auto target_text = ReadFile(target_folder / kFile);
  const auto draft_text = ReadFile(draft_folder / kFile);
  if (!target_text || !draft_text || *target_text == *draft_text) return {};
  ASSIGN_OR_RETURN(const auto target, Tokenizer::Load(target_folder));
  ASSIGN_OR_RETURN(const auto draft, Tokenizer::Load(draft_folder));
  const int32_t size = std::max(target->vocab_size(), draft->vocab_size());
  for (int32_t id = 0; id < size; ++id) {
    const std::string_view own = target->IdToToken(id), other = draft->IdToToken(id);
    if (own == other) continue;
    const auto words = [](std::string_view token) {
      return token.empty() ? std::string("no token") : json::Write(json::Value(std::string(token)));
    };
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--{}: the draft model in {} has a different vocabulary from the model in {}: "
                    "token {} is "
                    "{} in the draft model and {} in the model. Use a smaller model of the same "
                    "family",
                    kOption, draft_folder.string(), target_folder.string(), id, words(other),
                    words(own)),
        std::string(kOption));
  }
  return {};
}

Result<Speculation> SpeculationOf(const options::Settings& settings, const DownloadHooks& hooks,
                                  bool are_processes) {
  using Method = SpeculationConfig::Method;
  ASSIGN_OR_RETURN(const json::Value object, SpeculationObject(settings));
  if (object.as_object().empty()) return Speculation();

  Keys keys(object);
  ASSIGN_OR_RETURN(const MethodChoice choice, ReadMethod(keys));
  const auto& [named_method, model, is_named] = choice;
  std::string method = named_method;
  const bool was_known = !method.empty();  // UnknownSpeculation reports it in this case
  Speculation found;
  using Kind = DraftConfig::Kind;
  if (IsMtp(method)) {
    if (are_processes) return SpeculateNothing("method mtp works only within one process");
    const std::string served =
        settings.positionals().empty() ? settings.TextOr("model") : settings.positionals()[0];
    if (!model.empty() && model != served)
      return SpeculateNothing(
          fmt::format("{}: layers of another checkpoint do not propose tokens", model));
    found.draft.kind = Kind::kMtp;
    method = "mtp";
  } else if (method == "eagle3" || method == "eagle") {
    if (are_processes) return SpeculateNothing("an EAGLE head works only within one process");
    RETURN_IF_ERROR(FindDraft(settings, keys, model, hooks, are_processes, found.draft));
    found.draft.kind = Kind::kEagle3;
    method = "eagle3";
  } else if (method == "dflash") {
    if (are_processes) return SpeculateNothing("a DFlash drafter works only within one process");
    RETURN_IF_ERROR(FindDraft(settings, keys, model, hooks, are_processes, found.draft));
    found.draft.kind = Kind::kDflash;
  } else if (method == "draft_model" || (method.empty() && !model.empty())) {
    if (is_named && are_processes) return DraftOfProcesses();
    RETURN_IF_ERROR(FindDraft(settings, keys, model, hooks, are_processes, found.draft));
    if (!is_named) method = HiddenStateMethod(KindOf(found.draft.folder));
    if (method == "eagle") method = "eagle3";  // one reader handles both kinds of heads
    if (method.empty()) method = "draft_model";
    if (method == "eagle3") found.draft.kind = Kind::kEagle3;
    if (method == "dflash") found.draft.kind = Kind::kDflash;
    if (method == "draft_model" && are_processes) return DraftOfProcesses();
    if (found.draft.is_head() && are_processes)
      return SpeculateNothing("a drafting head works only within one process");
  }
  if (method == "ngram") {
    found.config.method = Method::kNgram;
    RETURN_IF_ERROR(ReadNgram(keys, found.config));
  } else if (method == "suffix") {
    found.config.method = Method::kSuffix;
    RETURN_IF_ERROR(ReadSuffix(keys, found.config));
  } else if (found.draft.is_head() || method == "draft_model") {
    RETURN_IF_ERROR(ReadDraft(keys, found.draft));
  } else {
    if (!was_known) LOG_WARNING("options", "--{}: {}", kOption, UnknownMethod(method));
    return Speculation();
  }
  ASSIGN_OR_RETURN(const std::optional<int> tokens, ReadNumTokens(keys, found.draft.is_mtp()));
  if (!tokens && method != "suffix") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: num_speculative_tokens is missing: give the number of tokens to "
                            "propose at a time, for example 4",
                            kOption),
                std::string(kOption));
  }
  if (found.draft.is_given())
    found.draft.num_tokens = *tokens;
  else
    found.config.num_tokens = tokens.value_or(found.config.lookup_max);
  keys.WarnOfOthers();
  return found;
}

}  // namespace sluice::cli
