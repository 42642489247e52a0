#include "tokenizer/tekken.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/base64.h"
#include "base/json_fields.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tekken_template.h"
#include "tokenizer/tokenizer_json.h"

namespace sluice {
namespace tekken {
namespace {

constexpr int64_t kMostTokens = kMaxTokenId;
constexpr int64_t kMostSpecial = 1 << 16;
// Maximum number of bytes compared to find how tokens are composed of other tokens: the sum of the
// tokens' squared lengths. Published files need less than a fiftieth of this.
constexpr size_t kMostComparedBytes = size_t{1} << 30;

// The special tokens of files that do not list them, which have version 7 or lower.
constexpr const char* kSpecialTokens[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

tl::unexpected<Error> Damaged(std::string_view where, std::string_view what) {
  return Fail(ErrorCode::kInvalidData, fmt::format("{}: {}", where, what), std::string(where));
}

struct Settings {
  std::string pattern;
  std::string version;
  int64_t num_tokens = 0;  // includes special tokens
  int64_t num_special = 0;
};

Result<Settings> ReadSettings(const JsonFields& file) {
  ASSIGN_OR_RETURN(const json::Value* object, file.Object("config"));
  if (object == nullptr) return file.Missing("config");
  const JsonFields fields(*object, "config.");
  Settings settings;
  ASSIGN_OR_RETURN(const auto pattern, fields.String("pattern"));
  if (!pattern) return fields.Missing("pattern");
  settings.pattern = *pattern;
  ASSIGN_OR_RETURN(const auto version, fields.String("version"));
  settings.version = version.value_or("");
  ASSIGN_OR_RETURN(settings.num_special,
                   fields.RequiredInteger("default_num_special_tokens", 0, kMostSpecial));
  ASSIGN_OR_RETURN(settings.num_tokens,
                   fields.RequiredInteger("default_vocab_size", settings.num_special, kMostTokens));
  return settings;
}

// Returns the file's special tokens by rank, padded to `settings.num_special` tokens.
Result<std::vector<std::string>> ReadSpecialTokens(const JsonFields& file,
                                                   const Settings& settings) {
  std::vector<std::string> tokens;
  ASSIGN_OR_RETURN(const json::Value::Array* list, file.Array("special_tokens"));
  if (list == nullptr) {
    tokens.assign(std::begin(kSpecialTokens), std::end(kSpecialTokens));
  } else {
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string where = fmt::format("special_tokens[{}]", i);
      if (!(*list)[i].is_object()) return Damaged(where, "must be an object");
      const JsonFields fields((*list)[i], where + ".");
      ASSIGN_OR_RETURN(const int64_t rank, fields.RequiredInteger("rank", 0, kMostSpecial));
      if (rank != static_cast<int64_t>(i))
        return Damaged(where, fmt::format("rank: expected {}, found {}", i, rank));
      ASSIGN_OR_RETURN(const auto text, fields.String("token_str"));
      if (!text || text->empty()) return fields.Missing("token_str");
      tokens.push_back(*text);
    }
  }
  if (std::ssize(tokens) > settings.num_special) {
    return Damaged("special_tokens",
                   fmt::format("{} tokens, but config.default_num_special_tokens is {}",
                               tokens.size(), settings.num_special));
  }
  for (int64_t id = std::ssize(tokens); id < settings.num_special; ++id)
    tokens.push_back(fmt::format("<SPECIAL_{}>", id));
  return tokens;
}

// The bytes of each token, by rank. Ranks that are not used are left out.
Result<std::vector<std::string>> ReadTokens(const JsonFields& file, size_t count) {
  ASSIGN_OR_RETURN(const json::Value::Array* list, file.Array("vocab"));
  if (list == nullptr) return file.Missing("vocab");
  if (list->size() < count) {
    return Damaged(
        "vocab", fmt::format("{} tokens; config.default_vocab_size needs {}", list->size(), count));
  }
  std::vector<std::string> tokens;
  tokens.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string where = fmt::format("vocab[{}]", i);
    if (!(*list)[i].is_object()) return Damaged(where, "must be an object");
    const JsonFields fields((*list)[i], where + ".");
    ASSIGN_OR_RETURN(const int64_t rank, fields.RequiredInteger("rank", 0, kMostTokens));
    if (rank != static_cast<int64_t>(i))
      return Damaged(where, fmt::format("rank: expected {}, found {}", i, rank));
    const json::Value* encoded = fields.Given("token_bytes");
    if (encoded == nullptr || !encoded->is_string()) return fields.Missing("token_bytes");
    auto bytes = sluice::DecodeBase64(encoded->as_string());
    if (!bytes) return tl::unexpected<Error>(std::move(bytes).error().In(where + ".token_bytes"));
    if (bytes->empty() || bytes->size() > kMaxTokenBytes / 2)
      return Damaged(where, fmt::format("a token of {} bytes", bytes->size()));
    tokens.push_back(*std::move(bytes));
  }
  return tokens;
}

// Lists all pairs of tokens that together form another token, in the order in which the tokenizer
// tries them.
Status AddMerges(const std::vector<std::string>& tokens, int32_t first_id, BpeSpec& spec) {
  TokenTable ranks;
  size_t compared_bytes = 0;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    compared_bytes += tokens[rank].size() * tokens[rank].size();
    if (compared_bytes > kMostComparedBytes) {
      return Damaged(fmt::format("vocab[{}]", rank),
                     fmt::format("the squared lengths of the tokens up to this one of {} bytes add "
                                 "up to more than {}, which would take too long to process; the "
                                 "file must have shorter tokens",
                                 tokens[rank].size(), kMostComparedBytes));
    }
    ranks.Add(tokens[rank], static_cast<int32_t>(rank));
  }
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    pairs.clear();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.Find(token.substr(0, cut)), right = ranks.Find(token.substr(cut));
      if (left && right) pairs.emplace_back(*left, *right);
    }
    if (spec.merges.size() + pairs.size() > kMaxMerges) {
      return Damaged(
          fmt::format("vocab[{}]", rank),
          fmt::format(
              "the tokens up to this one can be composed of two other tokens in more than {} ways",
              kMaxMerges));
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [left, right] : pairs) {
      spec.merges.push_back({.left = first_id + left,
                             .right = first_id + right,
                             .merged = first_id + static_cast<int32_t>(rank)});
    }
  }
  return {};
}

json::Value Object(std::initializer_list<std::pair<const char*, json::Value>> members) {
  json::Value object{json::Value::Object{}};
  for (const auto& [key, value] : members) object.Set(key, value);
  return object;
}

json::Value PreTokenizerOf(const std::string& pattern) {
  const json::Value split = Object({{"type", "Split"},
                                    {"pattern", Object({{"Regex", pattern}})},
                                    {"behavior", "Isolated"},
                                    {"invert", false}});
  const json::Value bytes = Object({{"type", "ByteLevel"},
                                    {"add_prefix_space", false},
                                    {"trim_offsets", true},
                                    {"use_regex", false}});
  return Object(
      {{"type", "Sequence"}, {"pretokenizers", json::Value(json::Value::Array{split, bytes})}});
}

// Puts the begin-of-text token before a text.
json::Value PostProcessorOf(const std::string& bos, int64_t id) {
  const json::Value token =
      Object({{"SpecialToken", Object({{"id", bos}, {"type_id", int64_t{0}}})}});
  const auto text = [](const char* name, int64_t type) {
    return Object({{"Sequence", Object({{"id", name}, {"type_id", type}})}});
  };
  json::Value of_token = Object({{"id", bos},
                                 {"ids", json::Value(json::Value::Array{json::Value(id)})},
                                 {"tokens", json::Value(json::Value::Array{json::Value(bos)})}});
  json::Value special{json::Value::Object{}};
  special.Set(bos, std::move(of_token));
  return Object({{"type", "TemplateProcessing"},
                 {"single", json::Value(json::Value::Array{token, text("A", 0)})},
                 {"pair", json::Value(json::Value::Array{token, text("A", 0), text("B", 1)})},
                 {"special_tokens", std::move(special)}});
}

// The reasoning effort of requests that do not set one; "" if there is none.
std::string DefaultEffort(const json::Value& file) {
  const json::Value* builder = file.Find("model_settings_builder");
  const json::Value* effort = builder == nullptr ? nullptr : builder->Find("reasoning_effort");
  const json::Value* absent = effort == nullptr ? nullptr : effort->Find("default");
  if (absent == nullptr || !absent->is_string()) return "";
  const std::string& word = absent->as_string();
  const bool is_word = std::all_of(word.begin(), word.end(),
                                   [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  return is_word ? word : "";
}

Result<TekkenTokenizer> Read(std::string_view text) {
  auto value = json::Parse(text, {.max_bytes = kMaxTokenizerJsonBytes});
  if (!value) return Fail(ErrorCode::kInvalidData, value.error().message);
  if (!value->is_object()) return Fail(ErrorCode::kInvalidData, "must be an object");
  const JsonFields file(*value, "");
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings(file));
  ASSIGN_OR_RETURN(const std::vector<std::string> special, ReadSpecialTokens(file, settings));
  const auto count = static_cast<size_t>(settings.num_tokens - settings.num_special);
  ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ReadTokens(file, count));

  TekkenTokenizer result;
  BpeSpec spec;
  spec.ignore_merges = true;
  const auto first_id = static_cast<int32_t>(settings.num_special);
  // Adds the special tokens to the vocabulary, so that they keep their ids.
  for (size_t id = 0; id < special.size(); ++id) {
    if (spec.vocabulary.Add(special[id], static_cast<int32_t>(id)) != TokenTable::AddResult::kAdded)
      return Damaged(fmt::format("special_tokens[{}]", id), "the text of a token before");
    result.parts.added_tokens.push_back({.id = static_cast<int32_t>(id),
                                         .content = special[id],
                                         .normalized = false,
                                         .special = true});
  }
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const auto added =
        spec.vocabulary.Add(byte_level::Spell(tokens[rank]), first_id + static_cast<int32_t>(rank));
    if (added != TokenTable::AddResult::kAdded)
      return Damaged(fmt::format("vocab[{}]", rank), "the bytes of a token before");
  }
  RETURN_IF_ERROR(AddMerges(tokens, first_id, spec));
  result.parts.pre_tokenizer = PreTokenizerOf(settings.pattern);
  result.parts.decoder = Object({{"type", "ByteLevel"}});
  constexpr std::pair<const char*, const char*> kNamed[] = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  for (const auto& [key, token] : kNamed)
    if (spec.vocabulary.Find(token)) result.config.Set(key, token);
  if (const auto bos = spec.vocabulary.Find(kNamed[0].second))
    result.parts.post_processor = PostProcessorOf(kNamed[0].second, *bos);
  std::string chat = TekkenTemplate(settings.version, DefaultEffort(*value));
  if (!chat.empty()) result.config.Set("chat_template", std::move(chat));
  result.parts.model = std::move(spec);
  return result;
}

}  // namespace
}  // namespace tekken

Result<TekkenTokenizer> ReadTekkenJson(std::string_view text) {
  return tekken::Read(text);
}

}  // namespace sluice
