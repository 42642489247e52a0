#include <yaml-cpp/yaml.h>

#include <set>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "options/names.h"
#include "options/sources.h"
#include "options/suggest.h"
#include "options/values.h"

namespace sluice::options {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 32;

// A quoted scalar is text; a plain one is what it looks like.
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

Result<json::Value> ToJson(const YAML::Node& node, int depth) {
  if (depth > kMaxDepth)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("nested deeper than {}", kMaxDepth));
  if (node.IsSequence()) {
    json::Value::Array array;
    for (const YAML::Node& item : node) {
      ASSIGN_OR_RETURN(json::Value value, ToJson(item, depth + 1));
      array.push_back(std::move(value));
    }
    return json::Value(std::move(array));
  }
  if (node.IsMap()) {
    json::Value object{json::Value::Object{}};
    for (const auto& item : node) {
      ASSIGN_OR_RETURN(json::Value value, ToJson(item.second, depth + 1));
      object.Set(item.first.Scalar(), std::move(value));
    }
    return object;
  }
  return node.IsNull() ? json::Value() : ScalarToJson(node);
}

class File {
 public:
  File(std::filesystem::path path, uint32_t commands, Dialect dialect)
      : path_(std::move(path)), names_(commands, dialect) {}

  Result<std::vector<Assignment>> Read() {
    const std::string extension = path_.extension();
    if (extension != ".yaml" && extension != ".yml") {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--config {}: expected a .yaml or .yml file", path_.string()),
                  "config");
    }
    auto text = ReadFile(path_, kMaxFileBytes);
    if (!text)
      return Fail(ErrorCode::kInvalidArgument, "--config: " + text.error().message, "config");
    YAML::Node root;
    try {
      root = YAML::Load(*text);
    } catch (const YAML::Exception& error) {
      return Bad(error.mark, error.msg);
    }
    if (root.IsNull()) return std::vector<Assignment>{};
    if (!root.IsMap()) return Bad(root.Mark(), "expected a mapping of option names to values");
    for (const auto& item : root) RETURN_IF_ERROR(ReadKey(item.first, item.second));
    return std::move(result_);
  }

 private:
  tl::unexpected<Error> Bad(const YAML::Mark& mark, std::string_view message) const {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", Place(mark), message),
                Place(mark));
  }
  std::string Place(const YAML::Mark& mark) const {
    return mark.line < 0 ? path_.string() : fmt::format("{}:{}", path_.string(), mark.line + 1);
  }

  Status ReadKey(const YAML::Node& key_node, const YAML::Node& value) {
    if (!key_node.IsScalar()) return Bad(key_node.Mark(), "a key must be the name of an option");
    const std::string key = Fold(key_node.Scalar());
    const auto spelling = names_.Lookup("--" + key, /*abbreviations=*/false);
    if (!spelling || key == "config") {
      std::vector<std::string> known;
      for (const std::string& flag : names_.all()) {
        if (flag.starts_with("--")) known.push_back(flag.substr(2));
      }
      return Bad(key_node.Mark(),
                 fmt::format("unknown key '{}'{}", key_node.Scalar(), DidYouMean(key, known)));
    }
    const Option& option = *spelling->option;
    if (!seen_.insert(option.name).second) {
      return Bad(key_node.Mark(), fmt::format("'{}' is given twice", key_node.Scalar()));
    }
    auto words = WordsOf(option, value);
    if (words && spelling->negated) {
      if (auto flag = ParseFlag(words->front())) words->front() = *flag ? "false" : "true";
    }
    if (words) words = CheckOrEmpty(option, *std::move(words));
    if (!words)
      return Bad(key_node.Mark(), fmt::format("{}: {}", key_node.Scalar(), words.error().message));
    result_.push_back({&option, *std::move(words), Source::kYaml, Place(key_node.Mark())});
    return {};
  }

  static Result<std::vector<std::string>> CheckOrEmpty(const Option& option,
                                                       std::vector<std::string> words) {
    if (words.empty()) return words;
    return CheckWords(option, std::move(words));
  }

  static Result<std::vector<std::string>> WordsOf(const Option& option, const YAML::Node& value) {
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
    ASSIGN_OR_RETURN(const json::Value object, ToJson(value, 0));
    return std::vector<std::string>{json::Write(object)};
  }

  const std::filesystem::path path_;
  const Names names_;
  std::set<std::string_view> seen_;
  std::vector<Assignment> result_;
};

}  // namespace

Result<std::vector<Assignment>> ReadYaml(const std::filesystem::path& file, uint32_t commands,
                                         Dialect dialect) {
  return File(file, commands, dialect).Read();
}

}  // namespace sluice::options
