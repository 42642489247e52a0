#include <fmt/format.h>

#include "options/dialect_notes.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::options {
namespace {

void Append(Found& all, Found more) {
  all.assignments.insert(all.assignments.end(), more.assignments.begin(), more.assignments.end());
  all.notes.insert(all.notes.end(), more.notes.begin(), more.notes.end());
}

// Reads the configuration files and --set values that `settings` name.
Result<Found> ReadFiles(const Settings& settings, Commands commands, Dialect dialect) {
  Found found;
  const auto file = settings.Text("config");
  if (dialect == Dialect::kTrtllm && (commands & kServe) != 0) {
    if (file) {
      ASSIGN_OR_RETURN(found, ReadTrtllmYaml(*file));
    }
    ASSIGN_OR_RETURN(Found keys, ReadTrtllmKeys(settings.List("set")));
    Append(found, std::move(keys));
  } else if (file) {
    ASSIGN_OR_RETURN(found.assignments, ReadYaml(*file, commands, dialect));
  }
  return found;
}

}  // namespace

// A refused option is an error unless its value is the default or a word that the row accepts.
Status CheckRefused(const Settings& settings) {
  for (const Assignment* given : settings.given()) {
    const Option& option = *given->option;
    if (option.effect != Effect::kRefused) continue;
    bool accepted = false;
    for (std::string_view word : Split(option.words, '|')) accepted |= given->words[0] == word;
    const std::string_view normal = DefaultOf(option, settings.dialect());
    if (!normal.empty()) {
      auto words = CheckWords(option, {std::string(normal)});
      accepted |= words.has_value() && *words == given->words;
    }
    if (accepted) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} {}: {}", given->origin, option.secret ? "***" : given->words[0],
                            option.reason),
                std::string(option.name));
  }
  return {};
}

Result<Settings> ReadFilesAgain(const Settings& settings, Commands commands) {
  std::vector<Assignment> all;
  for (const Assignment& given : settings.assignments()) {
    if (given.source == Source::kFlag || given.source == Source::kEnvironment) all.push_back(given);
  }
  const Dialect dialect = settings.dialect();
  ASSIGN_OR_RETURN(const Found files, ReadFiles(Settings(all, {}, dialect), commands, dialect));
  all.insert(all.begin(), files.assignments.begin(), files.assignments.end());
  Settings again(all, settings.positionals(), dialect);
  RETURN_IF_ERROR(CheckRefused(again));
  return again;
}

Result<Resolved> Resolve(const std::vector<std::string>& words,
                         const std::map<std::string, std::string>& environment, Commands commands,
                         Dialect dialect) {
  ASSIGN_OR_RETURN(CommandLine line, ReadCommandLine(words, commands, dialect));
  if (line.help) return Resolved{Settings({}, {}, dialect), line.help};
  ASSIGN_OR_RETURN(std::vector<Assignment> all, ReadEnvironment(environment, commands));
  all.insert(all.end(), line.assignments.begin(), line.assignments.end());
  Settings settings(all, line.positionals, dialect);
  ASSIGN_OR_RETURN(const Found files, ReadFiles(settings, commands, dialect));
  all.insert(all.begin(), files.assignments.begin(), files.assignments.end());
  settings = Settings(all, line.positionals, dialect);
  RETURN_IF_ERROR(CheckRefused(settings));
  settings.AddNotes(line.notes);
  settings.AddNotes(files.notes);
  settings.AddNotes(CompilationNotes(settings));
  if ((commands & kEngineCommands) != 0) {
    ASSIGN_OR_RETURN(const std::vector<Note> notes,
                     VariableNotes(environment, settings.Flag("fail-on-environ-validation")));
    settings.AddNotes(notes);
  }
  return Resolved{std::move(settings), std::nullopt};
}

}  // namespace sluice::options
