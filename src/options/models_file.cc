#include "options/models_file.h"

#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/suggest.h"
#include "options/values.h"
#include "options/yaml_reader.h"

namespace sluice::options {
namespace {

constexpr int64_t kMostPriority = 1'000'000;
constexpr size_t kMaxNameBytes = 256;

class ModelsFile {
 public:
  ModelsFile(const std::filesystem::path& path, Commands commands, Dialect dialect)
      : file_{.path = path, .option = "models", .content = "a mapping with the key models"},
        reader_(file_, commands, dialect) {}

  Result<std::vector<ModelEntry>> Read() {
    ASSIGN_OR_RETURN(const YAML::Node root, file_.Load());
    YAML::Node list;
    if (root.IsMap()) {
      ASSIGN_OR_RETURN(const Keys keys, KeysOf(root, {"models"}, "the file"));
      if (keys[0]) list.reset(*keys[0]);
    }
    if (list.IsNull()) return file_.Bad(root.Mark(), "expected a list called models, found none");
    if (!list.IsSequence())
      return file_.Bad(list.Mark(), "models: expected a list of models, each with name and path");
    if (list.size() == 0) return file_.Bad(list.Mark(), "models: the list is empty");
    if (list.size() > kMostModels) {
      return file_.Bad(list.Mark(), fmt::format("models: expected at most {}, found {}",
                                                kMostModels, list.size()));
    }
    std::vector<ModelEntry> entries;
    for (const YAML::Node& item : list) {
      ASSIGN_OR_RETURN(ModelEntry entry, ReadEntry(item, entries.size() + 1));
      if (!names_.insert(entry.name).second) {
        return file_.Bad(item.Mark(), fmt::format("two models are called '{}'", entry.name));
      }
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  // Values of the known keys, in the order of `known`; nullopt for absent keys.
  using Keys = std::vector<std::optional<YAML::Node>>;

  Result<Keys> KeysOf(const YAML::Node& mapping, const std::vector<std::string>& known,
                      std::string_view what) const {
    Keys found(known.size());
    for (const auto& item : mapping) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
      size_t i = 0;
      while (i < known.size() && known[i] != key) ++i;
      if (i == known.size()) {
        return file_.Bad(item.first.Mark(),
                         fmt::format("{}: unknown key '{}'{}", what, key, DidYouMean(key, known)));
      }
      if (found[i])
        return file_.Bad(item.first.Mark(), fmt::format("{}: '{}' is given twice", what, key));
      found[i] = item.second;
    }
    return found;
  }

  Result<std::string> TextOf(const std::optional<YAML::Node>& node, const YAML::Node& entry,
                             std::string_view what, std::string_view key) const {
    if (!node || node->IsNull())
      return file_.Bad(entry.Mark(), fmt::format("{}: {} is missing", what, key));
    if (!node->IsScalar() || node->Scalar().empty())
      return file_.Bad(node->Mark(), fmt::format("{}: {}: expected a text", what, key));
    return node->Scalar();
  }

  Result<ModelEntry> ReadEntry(const YAML::Node& node, size_t number) {
    std::string what = fmt::format("model {}", number);
    if (!node.IsMap()) {
      return file_.Bad(node.Mark(), fmt::format("{}: expected a mapping with name and path", what));
    }
    ASSIGN_OR_RETURN(const Keys keys,
                     KeysOf(node, {"name", "path", "options", "pinned", "priority"}, what));
    ModelEntry entry;
    entry.place = file_.Place(node.Mark());
    ASSIGN_OR_RETURN(entry.name, TextOf(keys[0], node, what, "name"));
    if (entry.name.size() > kMaxNameBytes) {
      return file_.Bad(keys[0]->Mark(), fmt::format("{}: name: expected at most {} bytes, found {}",
                                                    what, kMaxNameBytes, entry.name.size()));
    }
    what = fmt::format("model '{}'", entry.name);
    ASSIGN_OR_RETURN(entry.path, TextOf(keys[1], node, what, "path"));
    if (keys[2]) {
      if (!keys[2]->IsNull() && !keys[2]->IsMap()) {
        return file_.Bad(
            keys[2]->Mark(),
            fmt::format("{}: options: expected a mapping of option names to values", what));
      }
      auto options = reader_.Read(*keys[2]);
      if (!options) return tl::unexpected(std::move(options).error().In(what + ": options"));
      entry.options = *std::move(options);
    }
    if (keys[3]) {
      const auto flag = ParseFlag(keys[3]->IsScalar() ? keys[3]->Scalar() : "");
      if (!flag) {
        return file_.Bad(keys[3]->Mark(), fmt::format("{}: pinned: expected true or false", what));
      }
      entry.is_pinned = *flag;
    }
    if (keys[4]) {
      const auto priority = ParseInteger(keys[4]->IsScalar() ? keys[4]->Scalar() : "");
      if (!priority || *priority < -kMostPriority || *priority > kMostPriority) {
        return file_.Bad(keys[4]->Mark(),
                         fmt::format("{}: priority: expected a whole number between {} and {}",
                                     what, -kMostPriority, kMostPriority));
      }
      entry.priority = *priority;
    }
    return entry;
  }

  const YamlFile file_;
  YamlOptions reader_;
  std::set<std::string> names_;
};

}  // namespace

Result<std::vector<ModelEntry>> ReadModelsFile(const std::filesystem::path& file, Commands commands,
                                               Dialect dialect) {
  return ModelsFile(file, commands, dialect).Read();
}

}  // namespace sluice::options
