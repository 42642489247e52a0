#include "options/sources.h"

namespace sluice::options {

Result<Resolved> Resolve(const std::vector<std::string>& words,
                         const std::map<std::string, std::string>& environment, uint32_t commands,
                         Dialect dialect) {
  ASSIGN_OR_RETURN(CommandLine line, ReadCommandLine(words, commands, dialect));
  if (line.help) return Resolved{Settings(), line.help};
  ASSIGN_OR_RETURN(std::vector<Assignment> all, ReadEnvironment(environment, commands));
  all.insert(all.end(), line.assignments.begin(), line.assignments.end());
  Settings settings(all, line.positionals);
  if (const auto file = settings.Text("config")) {
    ASSIGN_OR_RETURN(const std::vector<Assignment> yaml, ReadYaml(*file, commands, dialect));
    all.insert(all.begin(), yaml.begin(), yaml.end());
    settings = Settings(all, line.positionals);
  }
  return Resolved{std::move(settings), std::nullopt};
}

}  // namespace sluice::options
