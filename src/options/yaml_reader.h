// Functions that the readers of YAML option files share.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "base/json.h"
#include "base/result.h"
#include "options/names.h"
#include "options/settings.h"

namespace sluice::options {

// A file, and the option that names it, for error messages.
struct YamlFile {
  std::filesystem::path path;
  std::string_view option = "config";
  std::string_view content = "a mapping of option names to values";  // what the top level must
                                                                     // contain, for error messages

  // Returns the position: "models.yaml:3".
  std::string Place(const YAML::Mark& mark) const;
  tl::unexpected<Error> Bad(const YAML::Mark& mark, std::string_view message) const;
  // Returns the top-level mapping, or null for an empty file. kInvalidArgument if the file cannot
  // be read, is too large, or is not a single YAML document.
  Result<YAML::Node> Load() const;
};

// Converts a node to JSON: plain scalars have the type that they look like, quoted ones are text.
// Limits the depth and the number of values, with aliases expanded.
Result<json::Value> YamlToJson(const YAML::Node& node);

// Reads mappings from option names to values.
class YamlOptions {
 public:
  // `file` must outlive this object.
  YamlOptions(const YamlFile& file, Commands commands, Dialect dialect)
      : file_(file), names_(commands, dialect) {}

  // Returns the options in `mapping`, a map or null.
  Result<std::vector<Assignment>> Read(const YAML::Node& mapping);

 private:
  Status ReadKey(const YAML::Node& key_node, const YAML::Node& value);
  // Sets one key of a JSON option. Later keys of the same option are merged with it.
  Status ReadDottedKey(const Option& option, const YAML::Node& key_node, const std::string& path,
                       const YAML::Node& value);

  const YamlFile& file_;
  const Names names_;
  std::set<std::string_view> seen_;
  std::vector<Assignment> result_;
};

}  // namespace sluice::options
