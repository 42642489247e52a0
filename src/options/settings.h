// Resolved values of all options of a subcommand. Precedence: flag, environment, YAML, default.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/option.h"

namespace sluice::options {

// In ascending precedence. kYamlOverFlags: a file of trtllm-serve. The keys in such a file take
// precedence over flags.
enum class Source { kDefault, kYaml, kEnvironment, kFlag, kYamlOverFlags };

// The checked values of one option, from one source.
struct Assignment {
  const Option* option = nullptr;
  std::vector<std::string> words;  // empty: resets the option to "not given"
  Source source = Source::kFlag;
  std::string origin;  // for example "--port", "config.yaml:3", "SLUICE_PORT"
};

// A message about the settings: a key or variable that has no effect or was mapped, or a warning.
struct Note {
  enum class Kind { kMapped, kNoEffect, kWarning } kind = Kind::kNoEffect;
  std::string what;  // for example "cuda_graph_config.enable_padding", "NCCL_DEBUG",
                     // "--compilation-config mode"
  std::string text;
  bool asks = false;  // kNoEffect: whether the value requests something (AsksForSomething)
};

class Settings {
 public:
  Settings() = default;
  // If one source sets an option several times, the last value counts. If several sources set an
  // option, their precedence decides. Lists that are given several times on the command line are
  // joined.
  explicit Settings(const std::vector<Assignment>& assignments,
                    std::vector<std::string> positionals = {}, Dialect dialect = Dialect::kSluice);

  // Positional arguments, in the order of the command line.
  const std::vector<std::string>& positionals() const { return positionals_; }

  // The dialect whose defaults apply.
  Dialect dialect() const { return dialect_; }

  const std::vector<Note>& notes() const { return notes_; }
  void AddNotes(const std::vector<Note>& notes) {
    notes_.insert(notes_.end(), notes.begin(), notes.end());
  }

  // Whether a flag, a variable or a file has set the option.
  bool Given(std::string_view name) const;
  // Returns the value, or the default; nullopt if there is no value and no default. REQUIRES: the
  // table contains the option, with the type that the called function returns.
  std::optional<std::string> Text(std::string_view name) const;  // for kString, kChoice, kJson
  std::string TextOr(std::string_view name, std::string_view otherwise = "") const;
  std::optional<int64_t> Integer(
      std::string_view name) const;  // for kInteger and kSize; nullopt for a word such as auto
  std::optional<double> Number(std::string_view name) const;  // nullopt for a word such as inf
  bool Flag(std::string_view name) const;
  std::vector<std::string> List(std::string_view name) const;

  // Returns the given assignments, in the order of the table.
  std::vector<const Assignment*> given() const;

  // Returns the assignments passed to the constructor.
  const std::vector<Assignment>& assignments() const { return assignments_; }

 private:
  std::vector<std::string> Words(std::string_view name) const;

  std::vector<Assignment> assignments_;
  std::map<std::string_view, Assignment> values_;
  std::vector<std::string> positionals_;
  Dialect dialect_ = Dialect::kSluice;
  std::vector<Note> notes_;
};

}  // namespace sluice::options
