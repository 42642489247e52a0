#include "bench/prompt_tokenizer.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/sonnet_lines.h"

namespace sluice::bench {
namespace {

// Number of tokens in the base vocabulary, without added tokens, like Hugging Face's vocab_size.
int64_t BaseVocabSize(const Tokenizer& tokenizer) {
  int32_t size = tokenizer.vocab_size();
  while (size > 0 && (tokenizer.IsAdded(size - 1) || tokenizer.IdToToken(size - 1).empty())) --size;
  return size;
}

// Returns the words of the built-in verse in lower case, each with a leading blank.
std::vector<std::string> CommonWords() {
  std::set<std::string> words;
  std::string word;
  for (std::string_view line : SonnetLines()) {
    for (char c : line) {
      if (c >= 'a' && c <= 'z') {
        word += c;
        continue;
      }
      if (word.size() > 1 && c == ' ') words.insert(" " + word);
      word.clear();
    }
  }
  return {words.begin(), words.end()};
}

}  // namespace

LocalTokenizer::LocalTokenizer(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), num_tokens_(BaseVocabSize(tokenizer)) {}

std::vector<int32_t> LocalTokenizer::Encode(const std::string& text,
                                            bool add_special_tokens) const {
  return tokenizer_.Encode(text, add_special_tokens);
}

std::string LocalTokenizer::Decode(std::span<const int32_t> ids) const {
  return tokenizer_.Decode(ids, /*skip_special_tokens=*/false);
}

std::vector<std::string> LocalTokenizer::ShortTexts() const {
  std::vector<std::string> texts;
  for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
    std::string text = tokenizer_.TokenBytes(id);
    const bool plain =
        !text.empty() && text.size() <= 4 && !tokenizer_.IsAdded(id) &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (plain) texts.push_back(std::move(text));
  }
  return texts;
}

ServerTokenizer::ServerTokenizer(HttpClient client, std::string model)
    : client_(std::move(client)), model_(std::move(model)) {}

json::Value ServerTokenizer::Ask(std::string_view path, json::Value body) const {
  if (failed_) return {};
  if (!model_.empty()) body.Set("model", model_);
  const auto answer = client_.Post(path, json::Write(body));
  if (!answer) {
    failed_ = answer.error();
    return {};
  }
  auto value = json::Parse(answer->body);
  if (answer->status == 200 && value) return *std::move(value);
  const json::Value* error = value ? value->Find("error") : nullptr;
  const json::Value* message = error != nullptr ? error->Find("message") : nullptr;
  failed_ =
      Error{ErrorCode::kUnavailable,
            fmt::format("{} answers {}: {}", path, answer->status,
                        message != nullptr && message->is_string() ? message->as_string()
                                                                   : answer->body.substr(0, 200)),
            "tokenizer"};
  return {};
}

std::vector<int32_t> ServerTokenizer::Encode(const std::string& text,
                                             bool add_special_tokens) const {
  if (text.empty()) {
    // Servers refuse an empty text, so the special tokens of another text are counted.
    if (!add_special_tokens) return {};
    const size_t with = Encode(" a", true).size(), without = Encode(" a", false).size();
    return std::vector<int32_t>(with > without ? with - without : 0);
  }
  json::Value body{
      json::Value::Object{{"prompt", text}, {"add_special_tokens", add_special_tokens}}};
  const json::Value answer = Ask("/tokenize", std::move(body));
  std::vector<int32_t> ids;
  const json::Value* tokens = answer.Find("tokens");
  if (tokens != nullptr && tokens->is_array()) {
    for (const json::Value& token : tokens->as_array())
      if (token.is_integer()) ids.push_back(static_cast<int32_t>(token.as_integer()));
  } else if (!failed_) {
    failed_ = Error{ErrorCode::kUnavailable, "/tokenize answers without \"tokens\"", "tokenizer"};
  }
  return ids;
}

std::string ServerTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  json::Value::Array list;
  bool known = true;
  for (const int32_t id : ids) {
    const auto word = words_.find(id);
    known = known && word != words_.end();
    if (known) text += word->second;
    list.emplace_back(int64_t{id});
  }
  if (known) return text;
  const json::Value answer =
      Ask("/detokenize", json::Value(json::Value::Object{{"tokens", std::move(list)}}));
  const json::Value* prompt = answer.Find("prompt");
  if (prompt != nullptr && prompt->is_string()) return prompt->as_string();
  if (!failed_)
    failed_ = Error{ErrorCode::kUnavailable, "/detokenize answers without \"prompt\"", "tokenizer"};
  return "";
}

const std::vector<int32_t>& ServerTokenizer::Tokens() const {
  if (!tokens_.empty() || failed_) return tokens_;
  for (const std::string& word : CommonWords()) {
    // Skips words that are not always a single token.
    const std::vector<int32_t> ids = Encode(word + word, false);
    if (ids.size() == 2 && ids[0] == ids[1] && words_.emplace(ids[0], word).second)
      tokens_.push_back(ids[0]);
  }
  constexpr size_t kFewWords = 32;
  if (tokens_.size() >= kFewWords || failed_) return tokens_;
  words_.clear();
  std::set<int32_t> found;
  for (std::string_view line : SonnetLines()) {
    for (const int32_t id : Encode(std::string(line), false)) found.insert(id);
  }
  tokens_.assign(found.begin(), found.end());
  return tokens_;
}

int64_t ServerTokenizer::NumTokens() const {
  return static_cast<int64_t>(Tokens().size());
}

int32_t ServerTokenizer::Token(int64_t place) const {
  const std::vector<int32_t>& tokens = Tokens();
  return tokens.empty() ? 0 : tokens[static_cast<size_t>(place) % tokens.size()];
}

Status ServerTokenizer::status() const {
  if (!failed_) return {};
  return tl::unexpected<Error>(*failed_);
}

}  // namespace sluice::bench
