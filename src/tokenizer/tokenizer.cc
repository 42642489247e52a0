#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "base/model_file.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tekken.h"

namespace sluice {

using tokenizer_internal::Pipeline;

namespace {

constexpr const char* kFile = "tokenizer.json";
constexpr const char* kTekkenFile = "tekken.json";
constexpr uint64_t kMaxConfigBytes = 64 << 20;

// Reads an optional JSON object from the folder. Returns an empty one if the file does not exist.
Result<json::Value> ReadObject(const std::filesystem::path& folder, const char* name) {
  const std::filesystem::path path = folder / name;
  const auto text = ReadModelFile(folder, name, kMaxConfigBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return json::Value(json::Value::Object{});
  if (!text) return tl::unexpected<Error>(text.error());
  auto value = json::Parse(*text);
  if (!value)
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: {}", path.string(), value.error().message));
  if (!value->is_object())
    return Fail(ErrorCode::kInvalidData, fmt::format("{}: must be an object", path.string()));
  return value;
}

// Truncates two texts to `most` tokens in total: first shortens the longer text to the length of
// the other, then shortens both equally. Source: LongestFirst in tokenizers' truncation.rs.
void CutLongestFirst(std::vector<int32_t>& a, std::vector<int32_t>& b, size_t most,
                     bool keeps_ends) {
  if (a.size() + b.size() <= most) return;
  std::vector<int32_t>& shorter = a.size() > b.size() ? b : a;
  std::vector<int32_t>& longer = a.size() > b.size() ? a : b;
  size_t n1 = shorter.size();
  size_t n2 = n1 > most ? n1 : std::max(n1, most - n1);
  if (n1 + n2 > most) {
    n1 = most / 2;
    n2 = n1 + most % 2;
  }
  const auto cut = [&](std::vector<int32_t>& ids, size_t size) {
    if (keeps_ends)
      ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(size));
    else
      ids.resize(size);
  };
  cut(shorter, n1);
  cut(longer, n2);
}

// Returns the tokens of added_tokens_decoder that are not in tokenizer.json.
Result<std::vector<AddedToken>> LateTokens(const json::Value& config, const TokenizerJson& parts) {
  std::vector<AddedToken> late;
  const json::Value* decoder = config.Find("added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return late;
  TokenTable known;
  for (const AddedToken& token : parts.added_tokens) known.Add(token.content, token.id);
  for (const auto& [key, entry] : decoder->as_object()) {
    const std::string where = fmt::format("tokenizer_config.json: added_tokens_decoder['{}']", key);
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return Fail(ErrorCode::kInvalidData, where + ": the key must be a token id");
    }
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry, id, where));
    std::optional<int32_t> other = known.Find(token.content);
    if (!other) other = VocabularyOf(parts.model).Find(token.content);
    if (other && *other != token.id) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format(
              "{}: '{}' has id {} in tokenizer.json: the two files belong to different models",
              where, token.content, *other));
    }
    if (!known.Find(token.content)) late.push_back(std::move(token));
  }
  return late;
}

// Returns the text of a special token, which is a string or an object with its content.
std::optional<std::string> TokenContent(const json::Value* value) {
  if (value != nullptr && value->is_object()) value = value->Find("content");
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->as_string();
}

// Adds advice to an error of reading kFile if the file does not exist.
Error WithWayOut(Error error, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool is_there =
      fs::symlink_status(folder / kFile, ignored).type() != fs::file_type::not_found;
  if (error.code != ErrorCode::kNotFound || is_there || !fs::is_directory(folder, ignored))
    return error;
  std::string others;
  for (const char* other : {"tokenizer.model", "vocab.json", "vocab.txt"}) {
    if (fs::exists(folder / other, ignored)) others = fmt::format(", and {} is not read", other);
  }
  error.message = fmt::format(
      "{} has no {}{}: write it with transformers: "
      "AutoTokenizer.from_pretrained(IN).save_pretrained(OUT), or take that of the model that this "
      "one was made from; its folder or id goes behind --tokenizer",
      folder.string(), kFile, others);
  return error;
}

// Copies to `own`, the content of tokenizer_config.json, the keys of `config` that it lacks.
void Complete(const json::Value& config, json::Value& own) {
  for (const auto& [key, value] : config.as_object())
    if (own.Find(key) == nullptr) own.Set(key, value);
}

}  // namespace

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::filesystem::path& model_folder) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  ASSIGN_OR_RETURN(tokenizer->config_, ReadObject(model_folder, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(tokenizer->special_tokens_map_,
                   ReadObject(model_folder, "special_tokens_map.json"));
  auto text = ReadModelFile(model_folder, kFile, kMaxTokenizerJsonBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    const auto tekken = ReadModelFile(model_folder, kTekkenFile, kMaxTokenizerJsonBytes);
    if (tekken) {
      const std::string path = (model_folder / kTekkenFile).string();
      auto read = ReadTekkenJson(*tekken);
      if (!read) return tl::unexpected<Error>(std::move(read).error().In(path));
      Complete(read->config, tokenizer->config_);
      auto pipeline = Pipeline::Create(std::move(read->parts), {});
      if (!pipeline) return tl::unexpected<Error>(std::move(pipeline).error().In(path));
      tokenizer->pipeline_ = *std::move(pipeline);
      return tokenizer;
    }
    if (tekken.error().code != ErrorCode::kNotFound) return tl::unexpected<Error>(tekken.error());
  }
  if (!text) return tl::unexpected<Error>(WithWayOut(std::move(text).error(), model_folder));
  const auto load = [&]() -> Status {
    ASSIGN_OR_RETURN(TokenizerJson parts, ReadTokenizerJson(*text));
    ASSIGN_OR_RETURN(std::vector<AddedToken> late, LateTokens(tokenizer->config_, parts));
    auto pipeline = Pipeline::Create(std::move(parts), std::move(late));
    if (!pipeline) return tl::unexpected<Error>(std::move(pipeline).error().In(kFile));
    tokenizer->pipeline_ = *std::move(pipeline);
    return {};
  };
  if (Status status = load(); !status)
    return tl::unexpected<Error>(std::move(status).error().In(model_folder.string()));
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view tokenizer_json) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  ASSIGN_OR_RETURN(TokenizerJson parts, ReadTokenizerJson(tokenizer_json));
  ASSIGN_OR_RETURN(tokenizer->pipeline_, Pipeline::Create(std::move(parts), {}));
  return tokenizer;
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  bool is_exceeded = false;
  auto ids = pipeline_->Encode(text, add_special_tokens, nullptr, &is_exceeded);
  CHECK(ids.has_value(), "cannot fail");
  if (is_exceeded)
    LOG_WARNING("tokenizer",
                "a text of {} bytes takes too many steps: only a part of it is matched",
                text.size());
  return *std::move(ids);
}
Result<std::vector<int32_t>> Tokenizer::EncodeWithin(std::string_view text, bool add_special_tokens,
                                                     const std::function<bool()>& stop) const {
  return pipeline_->Encode(text, add_special_tokens, stop);
}
Result<Tokenizer::Pair> Tokenizer::EncodePair(std::string_view first, std::string_view second,
                                              const std::optional<PairLimit>& limit) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> a, EncodeWithin(first, false));
  ASSIGN_OR_RETURN(std::vector<int32_t> b, EncodeWithin(second, false));
  if (limit) {
    const size_t special = pipeline_->NumSpecialTokensOfPair();
    CutLongestFirst(a, b, limit->tokens - std::min(special, limit->tokens), limit->keeps_ends);
  }
  PairOfTexts pair = pipeline_->JoinPair(std::move(a), std::move(b));
  return Pair{std::move(pair.ids), std::move(pair.types)};
}
std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return pipeline_->Decode(ids, skip_special_tokens);
}
std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  return pipeline_->TokenToId(token);
}
std::string_view Tokenizer::IdToToken(int32_t id) const {
  return pipeline_->IdToToken(id);
}
std::string Tokenizer::TokenBytes(int32_t id) const {
  return pipeline_->TokenBytes(id);
}
bool Tokenizer::IsSpecial(int32_t id) const {
  return pipeline_->IsSpecial(id);
}
bool Tokenizer::IsAdded(int32_t id) const {
  return pipeline_->IsAdded(id);
}
int32_t Tokenizer::vocab_size() const {
  return pipeline_->vocab_size();
}
const json::Value& Tokenizer::config() const {
  return config_;
}

std::optional<std::string> Tokenizer::named_token(std::string_view key) const {
  // A null in tokenizer_config.json means that the tokenizer lacks this special token.
  if (const json::Value* value = config_.Find(key)) return TokenContent(value);
  return TokenContent(special_tokens_map_.Find(key));
}
std::optional<std::string> Tokenizer::bos_token() const {
  return named_token("bos_token");
}
std::optional<std::string> Tokenizer::eos_token() const {
  return named_token("eos_token");
}
std::optional<std::string> Tokenizer::pad_token() const {
  return named_token("pad_token");
}
std::optional<std::string> Tokenizer::unk_token() const {
  return named_token("unk_token");
}

}  // namespace sluice
