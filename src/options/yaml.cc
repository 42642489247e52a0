#include <fmt/format.h>

#include "base/file.h"
#include "base/suggest.h"
#include "options/dotted.h"
#include "options/sources.h"
#include "options/values.h"
#include "options/yaml_reader.h"
#include "options/yaml_values.h"

namespace sluice::options {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 32;
// Maximum number of values, with aliases expanded.
constexpr int kMaxValues = 20000;

// Converts a scalar: a quoted one becomes text, a plain one gets the type that it looks like.
json::Value ScalarToJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return json::Value(text);
  if (text == "true" || text == "false") return json::Value(text == "true");
  if (text == "null" || text == "~" || text.empty()) return json::Value();
  if (auto integer = ParseInteger(text);
      integer && text.find_first_not_of("+-0123456789") == std::string::npos) {
    return json::Value(*integer);
  }
  if (auto number = ParseNumber(text)) return json::Value(*number);
  return json::Value(text);
}

// `room`: the number of further values that are allowed.
Result<json::Value> ToJson(const YAML::Node& node, int depth, int& room) {
  if (depth > kMaxDepth)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("nested deeper than {}", kMaxDepth));
  if (--room < 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("more than {} values, with aliases counted like the values that they stand for",
                    kMaxValues));
  }
  if (node.IsSequence()) {
    json::Value::Array array;
    for (const YAML::Node& item : node) {
      ASSIGN_OR_RETURN(json::Value value, ToJson(item, depth + 1, room));
      array.push_back(std::move(value));
    }
    return json::Value(std::move(array));
  }
  if (node.IsMap()) {
    json::Value object{json::Value::Object{}};
    for (const auto& item : node) {
      ASSIGN_OR_RETURN(json::Value value, ToJson(item.second, depth + 1, room));
      object.Set(item.first.Scalar(), std::move(value));
    }
    return object;
  }
  return node.IsNull() ? json::Value() : ScalarToJson(node);
}

Result<std::vector<std::string>> CheckOrEmpty(const Option& option,
                                              std::vector<std::string> words) {
  if (words.empty()) return words;
  return CheckWords(option, std::move(words));
}

Result<std::vector<std::string>> WordsOf(const Option& option, const YAML::Node& value) {
  if (value.IsNull()) return std::vector<std::string>{};
  if (value.IsScalar()) return std::vector<std::string>{value.Scalar()};
  if (value.IsSequence() && option.type == Type::kStrings) {
    std::vector<std::string> words;
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return Fail(ErrorCode::kInvalidArgument, "expected a list of texts");
      words.push_back(item.Scalar());
    }
    return words;
  }
  ASSIGN_OR_RETURN(const json::Value object, YamlToJson(value));
  return std::vector<std::string>{json::Write(object)};
}

}  // namespace

Result<json::Value> YamlToJson(const YAML::Node& node) {
  int room = kMaxValues;
  return ToJson(node, 0, room);
}

std::string YamlFile::Place(const YAML::Mark& mark) const {
  return mark.line < 0 ? path.string() : fmt::format("{}:{}", path.string(), mark.line + 1);
}

tl::unexpected<Error> YamlFile::Bad(const YAML::Mark& mark, std::string_view message) const {
  const std::string place = Place(mark);
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", place, message), place);
}

Result<YAML::Node> YamlFile::Load() const {
  const std::string extension = path.extension();
  if (extension != ".yaml" && extension != ".yml") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{} {}: expected a .yaml or .yml file", option, path.string()),
                std::string(option));
  }
  auto text = ReadFile(path, kMaxFileBytes);
  if (!text) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--{}: {}", option, text.error().message),
                std::string(option));
  }
  YAML::Node root;
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(*text);
    // Refuses further documents, whose options would be ignored silently.
    if (documents.size() > 1)
      return Bad(documents[1].Mark(), "expected one document, found a second one after ---");
    if (documents.empty()) return YAML::Node();
    root = documents.front();
  } catch (const YAML::Exception& error) {
    return Bad(error.mark, error.msg);
  }
  if (!root.IsNull() && !root.IsMap()) return Bad(root.Mark(), fmt::format("expected {}", content));
  return root;
}

Result<std::vector<Assignment>> YamlOptions::Read(const YAML::Node& mapping) {
  seen_.clear();
  result_.clear();
  if (mapping.IsNull()) return std::vector<Assignment>{};
  for (const auto& item : mapping) RETURN_IF_ERROR(ReadKey(item.first, item.second));
  return std::move(result_);
}

Status YamlOptions::ReadKey(const YAML::Node& key_node, const YAML::Node& value) {
  if (!key_node.IsScalar())
    return file_.Bad(key_node.Mark(), "a key must be the name of an option");
  const size_t dot = key_node.Scalar().find('.');
  const std::string key = Fold(key_node.Scalar().substr(0, dot));
  const auto spelling = names_.Lookup("--" + key, /*abbreviations=*/false);
  if (!spelling || key == "config") {
    std::vector<std::string> known;
    for (const std::string& flag : names_.all()) {
      if (flag.starts_with("--")) known.push_back(flag.substr(2));
    }
    return file_.Bad(key_node.Mark(),
                     fmt::format("unknown key '{}'{}", key_node.Scalar(), DidYouMean(key, known)));
  }
  const Option& option = *spelling->option;
  if (dot != std::string::npos)
    return ReadDottedKey(option, key_node, key_node.Scalar().substr(dot + 1), value);
  if (!seen_.insert(option.name).second) {
    return file_.Bad(key_node.Mark(), fmt::format("'{}' is given twice", key_node.Scalar()));
  }
  auto words = WordsOf(option, value);
  if (words && !words->empty() && spelling->negated) {
    if (auto flag = ParseFlag(words->front())) words->front() = *flag ? "false" : "true";
  }
  if (words) words = CheckOrEmpty(option, *std::move(words));
  if (!words)
    return file_.Bad(key_node.Mark(),
                     fmt::format("{}: {}", key_node.Scalar(), words.error().message));
  result_.push_back({&option, *std::move(words), Source::kYaml, file_.Place(key_node.Mark())});
  return {};
}

Status YamlOptions::ReadDottedKey(const Option& option, const YAML::Node& key_node,
                                  const std::string& path, const YAML::Node& value) {
  if (option.type != Type::kJson) {
    return file_.Bad(key_node.Mark(), fmt::format("'{}': {} takes no keys after a dot",
                                                  key_node.Scalar(), FlagName(option)));
  }
  auto json_value = YamlToJson(value);
  if (!json_value)
    return file_.Bad(key_node.Mark(),
                     fmt::format("{}: {}", key_node.Scalar(), json_value.error().message));
  json::Value object{json::Value::Object{}};
  Assignment* place = nullptr;
  for (Assignment& assignment : result_) {
    if (assignment.option == &option) place = &assignment;
  }
  if (place != nullptr) {
    if (auto before = json::Parse(place->words.front())) object = *std::move(before);
  }
  if (const Status set = SetDotted(object, path, *std::move(json_value)); !set)
    return file_.Bad(key_node.Mark(), set.error().message);
  Assignment joined{&option, {json::Write(object)}, Source::kYaml, file_.Place(key_node.Mark())};
  if (place != nullptr) {
    *place = std::move(joined);
  } else {
    result_.push_back(std::move(joined));
  }
  return {};
}

Result<json::Value> ReadYamlObject(const std::filesystem::path& path) {
  const YamlFile file{.path = path};
  ASSIGN_OR_RETURN(const YAML::Node root, file.Load());
  if (root.IsNull()) return json::Value(json::Value::Object{});
  auto object = YamlToJson(root);
  if (!object) return file.Bad(root.Mark(), object.error().message);
  return object;
}

Result<std::vector<Assignment>> ReadYaml(const std::filesystem::path& path, Commands commands,
                                         Dialect dialect) {
  const YamlFile file{.path = path};
  ASSIGN_OR_RETURN(const YAML::Node root, file.Load());
  return YamlOptions(file, commands, dialect).Read(root);
}

}  // namespace sluice::options
