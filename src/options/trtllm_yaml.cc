#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/suggest.h"
#include "options/dialect_table.h"
#include "options/dotted.h"
#include "options/sources.h"
#include "options/values.h"
#include "options/yaml_values.h"

namespace sluice::options {
namespace {

constexpr std::string_view kBlocks = "num-gpu-blocks-override";
constexpr std::string_view kHostBytes = "kv_cache_config.host_cache_size";

const DialectKey* FindKey(std::string_view path) {
  for (const DialectKey& key : Dialects().yaml_keys) {
    if (key.name == path) return &key;
  }
  return nullptr;
}

bool IsParent(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  const auto& keys = Dialects().yaml_keys;
  return std::any_of(keys.begin(), keys.end(),
                     [&](const DialectKey& key) { return key.name.starts_with(prefix); });
}

class Keys {
 public:
  // `origin`: the prefix of each error message: the file's name or --set.
  explicit Keys(std::string origin) : origin_(std::move(origin)) {}

  Status Read(const json::Value& object, const std::string& parent = "") {
    for (const auto& [name, value] : object.as_object()) {
      const std::string path = parent.empty() ? name : fmt::format("{}.{}", parent, name);
      RETURN_IF_ERROR(ReadKey(path, value));
    }
    return {};
  }

  Result<Found> Finish() {
    RETURN_IF_ERROR(CheckGraphSizes());
    if (max_tokens_ > 0) {
      const int64_t blocks = (max_tokens_ + block_size_ - 1) / block_size_;
      RETURN_IF_ERROR(Assign("kv_cache_config.max_tokens", kBlocks, {std::to_string(blocks)}));
    }
    return std::move(found_);
  }

 private:
  tl::unexpected<Error> Bad(const std::string& path, std::string_view message) const {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}: {}", origin_, path, message),
                path);
  }

  Status ReadKey(const std::string& path, const json::Value& value) {
    if (IsParent(path)) {
      if (value.is_null() && path == "cuda_graph_config")
        return Assign(path, "cuda-graphs", {"false"});
      if (value.is_null()) return {};
      if (!value.is_object())
        return Bad(path, fmt::format("expected a mapping, found {}", json::Write(value)));
      if (path == "cuda_graph_config") {
        graphs_ = value;
        RETURN_IF_ERROR(Assign(path, "cuda-graphs", {"true"}));
      }
      return Read(value, path);
    }
    const DialectKey* key = FindKey(path);
    if (key == nullptr) {
      std::vector<std::string> known;
      for (const DialectKey& each : Dialects().yaml_keys) {
        known.emplace_back(each.name);
        if (const size_t dot = each.name.rfind('.'); dot != each.name.npos)
          known.emplace_back(each.name.substr(0, dot));
      }
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: unknown key '{}'{}", origin_, path, DidYouMean(path, known)),
                  path);
    }
    if (key->effect == Effect::kRefused) {
      if (value.is_null() || (value.is_bool() && !value.as_bool())) return {};
      return Fail(ErrorCode::kUnsupported, fmt::format("{}: {}: {}", origin_, path, key->text),
                  path);
    }
    if (key->effect == Effect::kNoEffect) {
      found_.notes.push_back(
          {Note::Kind::kNoEffect, path, std::string(key->text), AsksForSomething(value)});
      return {};
    }
    return SetOption(*key, value);
  }

  Status SetOption(const DialectKey& key, const json::Value& value) {
    const std::string path(key.name);
    if (value.is_null()) return {};
    std::vector<std::string> words;
    if (value.is_array()) {
      for (const json::Value& item : value.as_array())
        words.push_back(item.is_string() ? item.as_string() : json::Write(item));
    } else {
      words.push_back(value.is_string() ? value.as_string() : json::Write(value));
    }
    if (key.text == "block-size" && value.is_integer()) block_size_ = value.as_integer();
    if (key.text == kBlocks) {
      if (!value.is_integer() || value.as_integer() < 1)
        return Bad(path, fmt::format("expected a number of tokens, found {}", json::Write(value)));
      max_tokens_ = value.as_integer();
      return {};
    }
    if (path == kHostBytes) {
      constexpr double kGib = 1 << 30;
      if (!value.is_number() || value.as_double() < 0)
        return Bad(path, fmt::format("expected a number of bytes, found {}", json::Write(value)));
      words = {fmt::format("{}", value.as_double() / kGib)};
    }
    return Assign(path, key.text, std::move(words));
  }

  Status Assign(const std::string& path, std::string_view name, std::vector<std::string> words) {
    const Option& option = Find(name);
    auto checked = CheckWords(option, std::move(words));
    if (!checked) return Bad(path, checked.error().message);
    found_.assignments.push_back({&option, *std::move(checked), Source::kYamlOverFlags, path});
    if (option.effect != Effect::kNoEffect) {
      found_.notes.push_back({Note::Kind::kMapped, path, "--" + std::string(FlagName(option))});
    }
    return {};
  }

  // As in trtllm-serve, batch_sizes and max_batch_size may both be given if they are consistent.
  Status CheckGraphSizes() {
    const json::Value* sizes = graphs_.Find("batch_sizes");
    const json::Value* most = graphs_.Find("max_batch_size");
    if (sizes == nullptr || most == nullptr || !sizes->is_array() || !most->is_integer() ||
        most->as_integer() == 0) {
      return {};
    }
    int64_t largest = 0;
    for (const json::Value& size : sizes->as_array()) {
      if (!size.is_integer())
        return Bad("cuda_graph_config.batch_sizes", "expected a list of whole numbers");
      largest = std::max(largest, size.as_integer());
    }
    if (largest == most->as_integer()) return {};
    return Bad(
        "cuda_graph_config",
        fmt::format(
            "max_batch_size is {}, but the largest of batch_sizes is {}; give only one of them",
            most->as_integer(), largest));
  }

  const std::string origin_;
  Found found_;
  json::Value graphs_{json::Value::Object{}};
  int64_t max_tokens_ = 0;
  int64_t block_size_ = 16;
};

}  // namespace

Result<Found> ReadTrtllmYaml(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const json::Value object, ReadYamlObject(file));
  Keys keys(file.string());
  RETURN_IF_ERROR(keys.Read(object));
  return keys.Finish();
}

Result<Found> ReadTrtllmKeys(const std::vector<std::string>& words) {
  json::Value object{json::Value::Object{}};
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--set: expected key=value, found '{}'", word), "set");
    }
    const std::string text = word.substr(equals + 1);
    auto value = json::Parse(text);
    RETURN_IF_ERROR(
        SetDotted(object, word.substr(0, equals), value ? *std::move(value) : json::Value(text)));
  }
  Keys keys("--set");
  RETURN_IF_ERROR(keys.Read(object));
  return keys.Finish();
}

}  // namespace sluice::options
