#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "tokenizer/step_fields.h"

namespace sluice {
namespace {

namespace od = simdjson::ondemand;

constexpr size_t kMaxAffix = 64;  // in bytes
// Upper limit of max_input_chars_per_word.
constexpr int64_t kMaxWord = 1 << 12;

tl::unexpected<Error> Damaged(std::string_view where, std::string_view what) {
  return Fail(ErrorCode::kInvalidData, fmt::format("tokenizer.json: {}: {}", where, what),
              std::string(where));
}
tl::unexpected<Error> Damaged(std::string_view where, simdjson::error_code error) {
  return Damaged(where, simdjson::error_message(error));
}

// A part of a buffer. simdjson may read padding beyond its end, which the buffer contains.
simdjson::padded_string_view Inside(std::string_view part) {
  return simdjson::padded_string_view(part, part.size() + simdjson::SIMDJSON_PADDING);
}

// Calls each(key, raw JSON of the value) -> Status for each member of an object.
template <typename Each>
Status ForEachMember(std::string_view where, simdjson::padded_string_view text, Each&& each) {
  od::parser parser;
  od::document document;
  if (const auto error = parser.iterate(text).get(document)) return Damaged(where, error);
  od::object object;
  if (const auto error = document.get_object().get(object)) return Damaged(where, error);
  for (auto result : object) {
    od::field field;
    if (const auto error = std::move(result).get(field)) return Damaged(where, error);
    std::string_view view;
    if (const auto error = field.unescaped_key().get(view)) return Damaged(where, error);
    const std::string key(view);
    std::string_view raw;
    if (const auto error = simdjson::to_json_string(field.value()).get(raw)) {
      return Damaged(fmt::format("{}.{}", where, key), error);
    }
    RETURN_IF_ERROR(each(key, raw));
  }
  return {};
}

Result<json::Value> Small(std::string_view where, std::string_view raw) {
  auto value = json::Parse(raw, {.max_bytes = kMaxTokenizerJsonBytes, .max_depth = 32});
  if (!value) return Damaged(where, value.error().message);
  return value;
}

Status ReadVocabulary(std::string_view raw, TokenTable& vocabulary) {
  const auto max_id = static_cast<int64_t>(std::min<size_t>(kMaxTokenId, kMaxIdGap + raw.size()));
  od::parser parser;
  od::document document;
  if (const auto error = parser.iterate(Inside(raw)).get(document))
    return Damaged("model.vocab", error);
  od::object object;
  if (document.get_object().get(object))
    return Damaged("model.vocab", "must be an object of tokens and ids");
  for (auto result : object) {
    od::field field;
    if (const auto error = std::move(result).get(field)) return Damaged("model.vocab", error);
    std::string_view token;
    if (const auto error = field.unescaped_key().get(token)) return Damaged("model.vocab", error);
    if (token.size() > kMaxTokenBytes) {
      return Damaged("model.vocab", fmt::format("a token of {} bytes; at most {} are read",
                                                token.size(), kMaxTokenBytes));
    }
    int64_t id = 0;
    if (field.value().get_int64().get(id) || id < 0 || id > max_id) {
      return Damaged(
          "model.vocab",
          fmt::format("the id of '{}' must be a whole number from 0 to {}", token, max_id));
    }
    switch (vocabulary.Add(token, static_cast<int32_t>(id))) {
      case TokenTable::AddResult::kAdded: break;
      case TokenTable::AddResult::kIdTaken:
        return Damaged("model.vocab",
                       fmt::format("'{}' and '{}' have the same id {}",
                                   vocabulary.Spelling(static_cast<int32_t>(id)), token, id));
      case TokenTable::AddResult::kSpellingTaken:
        return Damaged("model.vocab", fmt::format("'{}' stands twice", token));
    }
  }
  return {};
}

class MergeReader {
 public:
  MergeReader(BpeSpec& spec) : spec_(spec) {}

  Status Read(std::string_view raw) {
    od::parser parser;
    od::document document;
    if (const auto error = parser.iterate(Inside(raw)).get(document))
      return Damaged("model.merges", error);
    od::array array;
    if (document.get_array().get(array)) return Damaged("model.merges", "must be an array");
    for (auto result : array) {
      od::value element;
      if (const auto error = std::move(result).get(element)) return Damaged("model.merges", error);
      if (spec_.merges.size() >= kMaxMerges) {
        return Damaged("model.merges", fmt::format("more than {} merges", kMaxMerges));
      }
      RETURN_IF_ERROR(ReadOne(element));
    }
    return {};
  }

 private:
  std::string Where() const { return fmt::format("model.merges[{}]", spec_.merges.size()); }

  Status ReadOne(od::value element) {
    od::json_type type;
    if (const auto error = element.type().get(type)) return Damaged(Where(), error);
    if (type == od::json_type::string) {
      std::string_view line;
      if (const auto error = element.get_string().get(line)) return Damaged(Where(), error);
      if (line.starts_with("#version")) return {};
      const size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        return Damaged(Where(), fmt::format("'{}' must be two tokens with one space between them",
                                            line.substr(0, 100)));
      }
      return Add(line.substr(0, space), line.substr(space + 1));
    }
    od::array pair;
    if (type != od::json_type::array || element.get_array().get(pair)) {
      return Damaged(Where(), "must be a string or an array of two strings");
    }
    std::string_view tokens[2];
    size_t count = 0;
    for (auto result : pair) {
      std::string_view token;
      if (count == 2 || result.get_string().get(token))
        return Damaged(Where(), "must hold two strings");
      tokens[count++] = token;
    }
    if (count != 2) return Damaged(Where(), "must hold two strings");
    return Add(tokens[0], tokens[1]);
  }

  Status Add(std::string_view left, std::string_view right) {
    // The merged token continues a word if the left token does; the right token always continues a
    // word.
    const std::string& prefix = spec_.continuing_prefix;
    if (right.size() < prefix.size()) {
      return Damaged(Where(), fmt::format("'{}' is shorter than continuing_subword_prefix",
                                          right.substr(0, 100)));
    }
    merged_.assign(left).append(right.substr(prefix.size()));
    int32_t ids[3];
    int i = 0;
    for (const std::string_view token : {left, right, std::string_view(merged_)}) {
      const std::optional<int32_t> id = spec_.vocabulary.Find(token);
      if (!id) {
        return Damaged(Where(), fmt::format("'{}' is not in model.vocab", token.substr(0, 100)));
      }
      ids[i++] = *id;
    }
    spec_.merges.push_back({ids[0], ids[1], ids[2]});
    return {};
  }

  BpeSpec& spec_;
  std::string merged_;
};

Status CheckOption(const std::string& key, const json::Value& value, BpeSpec& spec) {
  const auto flag = [&](bool& target) -> Status {
    if (value.is_null()) return {};
    if (!value.is_bool()) return Damaged("model." + key, "must be true or false");
    target = value.as_bool();
    return {};
  };
  if (key == "unk_token" && !value.is_null()) {
    if (!value.is_string()) return Damaged("model.unk_token", "must be a string or null");
    spec.unk_token = value.as_string();
  }
  if (key == "fuse_unk") return flag(spec.fuse_unk);
  if (key == "byte_fallback") return flag(spec.byte_fallback);
  if (key == "ignore_merges") return flag(spec.ignore_merges);
  if ((key == "continuing_subword_prefix" || key == "end_of_word_suffix") && !value.is_null()) {
    if (!value.is_string() || value.as_string().size() > kMaxAffix)
      return Damaged("model." + key, fmt::format("must be a text of at most {} bytes", kMaxAffix));
    (key == "end_of_word_suffix" ? spec.word_suffix : spec.continuing_prefix) = value.as_string();
  }
  if (key == "dropout" && !value.is_null() && !(value.is_number() && value.as_double() == 0)) {
    return Fail(
        ErrorCode::kUnsupported,
        "tokenizer.json: model.dropout makes encoding random; set it to null to use the vocabulary",
        "model.dropout");
  }
  return {};
}

Status CheckOption(const std::string& key, const json::Value& value, WordPieceSpec& spec) {
  const auto text = [&](std::string& target) -> Status {
    if (!value.is_string()) return Damaged("model." + key, "must be a string");
    target = value.as_string();
    return {};
  };
  if (key == "unk_token") return text(spec.unk_token);
  if (key == "continuing_subword_prefix") return text(spec.prefix);
  if (key == "max_input_chars_per_word") {
    if (!value.is_integer() || value.as_integer() < 0)
      return Damaged("model." + key, "must be a whole number");
    spec.max_characters = static_cast<size_t>(std::min<int64_t>(value.as_integer(), kMaxWord));
  }
  return {};
}

Status CheckOption(const std::string& key, const json::Value& value, UnigramSpec& spec) {
  if (key == "byte_fallback" && !value.is_null()) {
    if (!value.is_bool()) return Damaged("model.byte_fallback", "must be true or false");
    spec.byte_fallback = value.as_bool();
  }
  if (key == "unk_id" && !value.is_null()) {
    if (!value.is_integer()) return Damaged("model.unk_id", "must be a whole number");
    spec.unk_id = value.as_integer();
  }
  return {};
}

// Reads a list of tokens with their scores.
Status ReadScores(std::string_view raw, UnigramSpec& spec) {
  od::parser parser;
  od::document document;
  if (const auto error = parser.iterate(Inside(raw)).get(document))
    return Damaged("model.vocab", error);
  od::array array;
  if (document.get_array().get(array))
    return Damaged("model.vocab", "must be an array of tokens and scores");
  for (auto result : array) {
    const std::string where = fmt::format("model.vocab[{}]", spec.scores.size());
    od::array pair;
    if (result.get_array().get(pair)) return Damaged(where, "must hold a token and its score");
    std::string token;
    double score = 0;
    size_t count = 0;
    for (auto part : pair) {
      std::string_view text;
      const bool is_good = count == 0   ? !part.get_string().get(text)
                           : count == 1 ? !part.get_double().get(score)
                                        : false;
      if (!is_good) return Damaged(where, "must hold a token and its score");
      if (count++ == 0) token = text;
    }
    if (count != 2 || token.size() > kMaxTokenBytes || spec.scores.size() > kMaxTokenId)
      return Damaged(where, "must hold a token and its score, within limits");
    const auto id = static_cast<int32_t>(spec.scores.size());
    if (spec.vocabulary.Add(token, id) != TokenTable::AddResult::kAdded)
      return Damaged(where, fmt::format("'{}' stands twice", token));
    spec.scores.push_back(score);
  }
  return {};
}

// Checks the members of the model except vocabulary and merges.
template <typename Spec>
Status CheckOptions(const std::vector<std::pair<std::string, json::Value>>& options, Spec& spec) {
  for (const auto& [key, value] : options) RETURN_IF_ERROR(CheckOption(key, value, spec));
  return {};
}

// The members that the model has. Old files omit `type`; these members then determine it, as in
// `tokenizers`.
struct ModelMembers {
  bool has_merges = false, has_list = false, has_word_limit = false;
};

// Determines the kind of model from `type` or, if absent, from the members.
Result<ModelSpec> SpecOfType(const std::optional<json::Value>& type, const ModelMembers& members) {
  if (!type) {
    if (members.has_list) return UnigramSpec();
    if (members.has_merges) return BpeSpec();
    if (members.has_word_limit) return WordPieceSpec();
    return Damaged("model", "'type' is missing, and no member identifies the model");
  }
  const std::string name = type->is_string() ? type->as_string() : json::TypeName(type->type());
  if (type->is_string() && name == "BPE") return BpeSpec();
  if (type->is_string() && name == "WordPiece") return WordPieceSpec();
  if (type->is_string() && name == "Unigram") return UnigramSpec();
  return Fail(ErrorCode::kUnsupported,
              fmt::format("tokenizer.json: a model of type '{}' is not supported; supported are "
                          "BPE, WordPiece and Unigram",
                          name),
              "model.type");
}

Status ReadModel(std::string_view raw, ModelSpec& spec) {
  std::string_view vocabulary, merges;
  std::optional<json::Value> type;
  std::vector<std::pair<std::string, json::Value>> options;
  RETURN_IF_ERROR(ForEachMember(
      "model", Inside(raw), [&](const std::string& key, std::string_view value) -> Status {
        if (key == "vocab") {
          vocabulary = value;
        } else if (key == "merges") {
          merges = value;
        } else {
          ASSIGN_OR_RETURN(json::Value parsed, Small("model." + key, value));
          if (key == "type")
            type = std::move(parsed);
          else
            options.emplace_back(key, std::move(parsed));
        }
        return {};
      }));
  if (!type && vocabulary.empty()) return Damaged("model", "'vocab' is missing");
  // Checks the type first: for an unsupported kind of model, the error should name the kind, not a
  // difference in the vocabulary.
  const bool has_word_limit = std::ranges::any_of(
      options, [](const auto& option) { return option.first == "max_input_chars_per_word"; });
  ASSIGN_OR_RETURN(spec, SpecOfType(type, {.has_merges = !merges.empty(),
                                           .has_list = vocabulary.starts_with('['),
                                           .has_word_limit = has_word_limit}));
  RETURN_IF_ERROR(std::visit([&](auto& kind) { return CheckOptions(options, kind); }, spec));
  if (vocabulary.empty()) return Damaged("model", "'vocab' is missing");
  if (auto* unigram = std::get_if<UnigramSpec>(&spec)) return ReadScores(vocabulary, *unigram);
  if (auto* words = std::get_if<WordPieceSpec>(&spec))
    return ReadVocabulary(vocabulary, words->vocabulary);
  if (merges.empty()) return Damaged("model", "'merges' is missing");
  auto& bpe = std::get<BpeSpec>(spec);
  RETURN_IF_ERROR(ReadVocabulary(vocabulary, bpe.vocabulary));
  return MergeReader(bpe).Read(merges);
}

Result<TokenizerJson> ReadParts(std::string_view text) {
  TokenizerJson parts;
  json::Value added;
  bool has_model = false;
  const simdjson::padded_string padded(text);
  RETURN_IF_ERROR(
      ForEachMember("file", padded, [&](const std::string& key, std::string_view raw) -> Status {
        if (key == "model") {
          has_model = true;
          return ReadModel(raw, parts.model);
        }
        json::Value* target = key == "normalizer"       ? &parts.normalizer
                              : key == "pre_tokenizer"  ? &parts.pre_tokenizer
                              : key == "post_processor" ? &parts.post_processor
                              : key == "decoder"        ? &parts.decoder
                              : key == "added_tokens"   ? &added
                                                        : nullptr;
        if (target == nullptr && key != "version") return {};
        ASSIGN_OR_RETURN(json::Value value, Small(key, raw));
        if (target != nullptr) {
          *target = std::move(value);
        } else if (!value.is_string() || value.as_string() != "1.0") {
          return Fail(ErrorCode::kUnsupported, "tokenizer.json: 'version' must be \"1.0\"",
                      "version");
        }
        return {};
      }));
  if (!has_model) return Damaged("file", "'model' is missing");
  if (added.is_null()) return parts;
  if (!added.is_array() || added.as_array().size() > kMaxAddedTokens) {
    return Damaged("added_tokens",
                   fmt::format("must be an array of at most {} tokens", kMaxAddedTokens));
  }
  for (size_t i = 0; i < added.as_array().size(); ++i) {
    const json::Value& entry = added.as_array()[i];
    const std::string where = fmt::format("tokenizer.json: added_tokens[{}]", i);
    const json::Value* id = entry.Find("id");
    if (id == nullptr || !id->is_integer()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: 'id' must be from 0 to {}", where, kMaxTokenId));
    }
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry, id->as_integer(), where));
    parts.added_tokens.push_back(std::move(token));
  }
  return parts;
}

}  // namespace

Result<AddedToken> ReadAddedToken(const json::Value& value, int64_t id, const std::string& where) {
  AddedToken token;
  if (id < 0 || id > kMaxTokenId) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: the id must be from 0 to {}, found {}", where, kMaxTokenId, id));
  }
  token.id = static_cast<int32_t>(id);
  const json::Value* content = value.Find("content");
  if (content == nullptr || !content->is_string() || content->as_string().size() > kMaxTokenBytes) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: 'content' must be a string of at most {} bytes", where, kMaxTokenBytes));
  }
  token.content = content->as_string();
  const auto flag = [&](const char* name, bool& target) {
    const json::Value* found = value.Find(name);
    if (found == nullptr) return true;
    if (!found->is_bool()) return false;
    target = found->as_bool();
    return true;
  };
  if (!flag("special", token.special))
    return Fail(ErrorCode::kInvalidData, where + ": 'special' must be true or false");
  token.normalized = !token.special;
  if (!flag("normalized", token.normalized) || !flag("single_word", token.single_word) ||
      !flag("lstrip", token.lstrip) || !flag("rstrip", token.rstrip)) {
    return Fail(
        ErrorCode::kInvalidData,
        where + ": 'normalized', 'single_word', 'lstrip' and 'rstrip' must be true or false");
  }
  return token;
}

Result<TokenizerJson> ReadTokenizerJson(std::string_view text) {
  if (text.size() > kMaxTokenizerJsonBytes) {
    return Damaged(
        "file", fmt::format("{} bytes, at most {} are read", text.size(), kMaxTokenizerJsonBytes));
  }
  auto parts = ReadParts(text);
  if (parts || parts.error().code != ErrorCode::kInvalidData) return parts;
  // Parses the whole text, because the parser of the parts does not report where JSON is invalid.
  const auto whole = json::Parse(text, {.max_bytes = kMaxTokenizerJsonBytes});
  if (whole || whole.error().code != ErrorCode::kInvalidArgument) return parts;
  return Fail(ErrorCode::kInvalidData, "tokenizer.json: " + whole.error().message, "file");
}

}  // namespace sluice
