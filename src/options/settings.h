// The value of every option of one subcommand, resolved: flag over environment over YAML over
// default.
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

enum class Source { kDefault, kYaml, kEnvironment, kFlag };

// Words for one option, checked, from one place.
struct Assignment {
  const Option* option = nullptr;
  std::vector<std::string> words;  // empty: back to "not given"
  Source source = Source::kFlag;
  std::string origin;  // "--port", "config.yaml:3", "SLUICE_PORT"
};

class Settings {
 public:
  Settings() = default;
  // Later assignments win over earlier ones of the same source, and sources over each other by
  // their rank. Lists that are given several times on the command line are joined.
  explicit Settings(const std::vector<Assignment>& assignments,
                    std::vector<std::string> positionals = {});

  // Words that belong to no option, in order.
  const std::vector<std::string>& positionals() const { return positionals_; }

  // True where a flag, a variable or a file gave it.
  bool Given(std::string_view name) const;
  // The value, or the default, or nothing where there is neither. REQUIRES: the table has the
  // option, with that type.
  std::optional<std::string> Text(std::string_view name) const;  // kString, kChoice, kJson
  std::string TextOr(std::string_view name, std::string_view otherwise = "") const;
  std::optional<int64_t> Integer(
      std::string_view name) const;  // kInteger, kSize; nothing for a word such as auto
  std::optional<double> Number(std::string_view name) const;
  bool Flag(std::string_view name) const;
  std::vector<std::string> List(std::string_view name) const;

  // What was given, in the order of the table.
  std::vector<const Assignment*> given() const;

 private:
  std::vector<std::string> Words(std::string_view name) const;

  std::map<std::string_view, Assignment> values_;
  std::vector<std::string> positionals_;
};

}  // namespace sluice::options
