#include "cli/adapter_settings.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_fields.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

constexpr const char* kOption = "lora-modules";

tl::unexpected<Error> BadModule(std::string_view word, std::string_view problem) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--lora-modules: {}; expected name=folder or {{\"name\": ..., \"path\": "
                          "...}}, found '{}'",
                          problem, word.substr(0, 200)),
              kOption);
}

Result<AdapterSource> ReadObject(const std::string& word) {
  const auto value = json::Parse(word);
  if (!value || !value->is_object()) return BadModule(word, "not a JSON object");
  AdapterSource source;
  for (const auto& [key, member] : value->as_object()) {
    const bool is_text = member.is_string();
    if (key == "name" && is_text)
      source.name = member.as_string();
    else if (key == "path" && is_text)
      source.path = member.as_string();
    else if (key == "base_model_name" && (is_text || member.is_null()))
      source.base = is_text ? member.as_string() : "";
    else if (key != "is_3d_lora_weight")
      return BadModule(word,
                       fmt::format("\"{}\" is unknown, or is not a text", key.substr(0, 100)));
  }
  return source;
}

Result<AdapterSource> ReadModule(const std::string& word) {
  AdapterSource source;
  if (word.starts_with('{')) {
    ASSIGN_OR_RETURN(source, ReadObject(word));
  } else {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return BadModule(word, "there is no '='");
    source.name = word.substr(0, equals);
    source.path = word.substr(equals + 1);
  }
  if (source.name.empty() || source.path.empty())
    return BadModule(word, "a name and a folder are needed");
  return source;
}

bool IsModelName(const options::Settings& settings, const std::string& name) {
  std::vector<std::string> names = settings.List("served-model-name");
  if (names.empty()) {
    names.push_back(settings.positionals().empty() ? settings.TextOr("model")
                                                   : settings.positionals().front());
  }
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Result<AdapterSettings> AdaptersOf(const options::Settings& settings) {
  AdapterSettings adapters;
  adapters.enabled = settings.Flag("enable-lora");
  for (const std::string& word : settings.List(kOption)) {
    if (!adapters.enabled) {
      return Fail(
          ErrorCode::kInvalidArgument,
          "--lora-modules: adapters are served only with --enable-lora; give that option, too",
          kOption);
    }
    ASSIGN_OR_RETURN(AdapterSource source, ReadModule(word));
    const bool is_taken =
        std::any_of(adapters.modules.begin(), adapters.modules.end(),
                    [&](const AdapterSource& other) { return other.name == source.name; });
    if (is_taken)
      return BadModule(word, fmt::format("two adapters have the name '{}'", source.name));
    if (IsModelName(settings, source.name)) {
      return BadModule(word, fmt::format("the lora adapter '{}' conflicts with a served base model",
                                         source.name));
    }
    adapters.modules.push_back(std::move(source));
  }
  adapters.max_loras = *settings.Integer("max-loras");
  adapters.max_cpu_loras = settings.Integer("max-cpu-loras");
  adapters.max_rank = options::ParseInteger(settings.TextOr("max-lora-rank")).value_or(16);
  const std::string dtype = settings.TextOr("lora-dtype");
  if (dtype == "bfloat16") adapters.dtype = ElementType::kBF16;
  if (dtype == "float16") adapters.dtype = ElementType::kF16;
  adapters.target_modules = settings.List("lora-target-modules");
  adapters.modules_to_save = settings.List("lora-modules-to-save");
  return adapters;
}

}  // namespace sluice::cli
