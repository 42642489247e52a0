#include "options/dialect_notes.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/suggest.h"
#include "options/values.h"

namespace sluice::options {
namespace {

bool Covers(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

// Returns the variables that set options, and those that other parts of the program read.
std::vector<std::string> OwnVariables() {
  std::vector<std::string> variables = {
      "SLUICE_CUBLASLT",   "SLUICE_HIP_RUNTIME",    "SLUICE_LAUNCHED",      "SLUICE_LAUNCH_SOCKET",
      "SLUICE_MPI_PLUGIN", "SLUICE_LISTEN_ADDRESS", "SLUICE_SECRETS_FILE",  "SLUICE_NCCL",
      "SLUICE_RCCL",       "SLUICE_HIPBLASLT",      "SLUICE_KERNEL_OVERLAP"};
  for (const Option& option : Table()) variables.push_back(VariableOf(option));
  return variables;
}

bool IsOwnVariable(std::string_view name) {
  const std::vector<std::string> variables = OwnVariables();
  return std::find(variables.begin(), variables.end(), name) != variables.end();
}

void AddCompilationNote(const std::string& path, const json::Value& value,
                        std::vector<Note>& notes) {
  const std::string what = "--compilation-config " + path;
  for (const DialectKey& key : Dialects().compilation_keys) {
    if (key.effect == Effect::kMapped && (path == key.name || path == key.earlier)) {
      notes.push_back({Note::Kind::kMapped, what, "--" + std::string(FlagName(Find(key.text)))});
      return;
    }
    if (path == key.name) {
      notes.push_back(
          {Note::Kind::kNoEffect, what, std::string(key.text), AsksForSomething(value)});
      return;
    }
    if (path == key.earlier) {
      notes.push_back({Note::Kind::kNoEffect, what, fmt::format("now {}; {}", key.name, key.text),
                       AsksForSomething(value)});
      return;
    }
  }
  notes.push_back({Note::Kind::kWarning, what, "is not a key of vLLM; it is ignored"});
}

}  // namespace

const DialectKey* FindVariable(std::string_view name) {
  const DialectKey* found = nullptr;
  for (const DialectKey& variable : Dialects().variables) {
    if (Covers(variable.name, name) &&
        (found == nullptr || variable.name.size() > found->name.size())) {
      found = &variable;
    }
  }
  return found;
}

Result<std::vector<Note>> VariableNotes(const std::map<std::string, std::string>& environment,
                                        bool strict) {
  std::vector<Note> notes;
  for (const auto& [name, value] : environment) {
    const DialectKey* found = FindVariable(name);
    if (found != nullptr && found->effect == Effect::kNoEffect) {
      notes.push_back({Note::Kind::kNoEffect, name, std::string(found->text)});
    } else if (found == nullptr && name.starts_with("VLLM_")) {
      const std::string text = fmt::format("Unknown vLLM environment variable detected: {}", name);
      if (strict) return Fail(ErrorCode::kInvalidArgument, text, name);
      notes.push_back({Note::Kind::kWarning, name, "is not a variable of vLLM"});
    } else if (name.starts_with("SLUICE_") && !IsOwnVariable(name)) {
      notes.push_back(
          {Note::Kind::kWarning, name,
           fmt::format("is not a variable of this program{}", DidYouMean(name, OwnVariables()))});
    }
  }
  return notes;
}

std::vector<Note> CompilationNotes(const Settings& settings) {
  std::vector<Note> notes;
  const auto text = settings.Text("compilation-config");
  if (!text) return notes;
  const auto object = json::Parse(*text);
  if (!object || !object->is_object()) return notes;
  for (const auto& [key, value] : object->as_object()) {
    if (key == "pass_config" && value.is_object()) {
      for (const auto& [inner, inner_value] : value.as_object())
        AddCompilationNote(fmt::format("{}.{}", key, inner), inner_value, notes);
    } else {
      AddCompilationNote(key, value, notes);
    }
  }
  return notes;
}

}  // namespace sluice::options
