// The tokenizer that makes and counts a benchmark's prompts: a local one, or a server's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "client/http_client.h"
#include "tokenizer/tokenizer.h"

namespace sluice::bench {

// Thread safety: one thread at a time.
class PromptTokenizer {
 public:
  virtual ~PromptTokenizer() = default;
  virtual std::vector<int32_t> Encode(const std::string& text, bool add_special_tokens) const = 0;
  // Keeps special tokens in the text.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // The tokens from which prompts are drawn. Tokens added to the vocabulary are not among them; a
  // few of the NumTokens() tokens may be special.
  virtual int64_t NumTokens() const = 0;
  virtual int32_t Token(int64_t place) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // Whether the NumTokens() tokens are the whole vocabulary. If not, prompts draw tokens at random,
  // because prompts of consecutive tokens would soon repeat.
  virtual bool has_all_tokens() const = 0;
  // Returns short texts, to search for one that is a single token in every context.
  virtual std::vector<std::string> ShortTexts() const = 0;
  // The first failure. After it, results of the other functions are meaningless.
  virtual Status status() const { return {}; }
};

// Uses a tokenizer in this process, which must outlive this object.
class LocalTokenizer : public PromptTokenizer {
 public:
  explicit LocalTokenizer(const Tokenizer& tokenizer);
  std::vector<int32_t> Encode(const std::string& text, bool add_special_tokens) const override;
  std::string Decode(std::span<const int32_t> ids) const override;
  int64_t NumTokens() const override { return num_tokens_; }
  int32_t Token(int64_t place) const override { return static_cast<int32_t>(place); }
  bool IsSpecial(int32_t id) const override { return tokenizer_.IsSpecial(id); }
  bool has_all_tokens() const override { return true; }
  std::vector<std::string> ShortTexts() const override;

 private:
  const Tokenizer& tokenizer_;
  const int64_t num_tokens_;
};

// Uses a server's /tokenize and /detokenize. Draws prompts from common words that are one token
// each or, if the vocabulary has too few of these, from the tokens of a text.
class ServerTokenizer : public PromptTokenizer {
 public:
  // `model`: the model's name on the server.
  ServerTokenizer(HttpClient client, std::string model);
  std::vector<int32_t> Encode(const std::string& text, bool add_special_tokens) const override;
  std::string Decode(std::span<const int32_t> ids) const override;
  int64_t NumTokens() const override;
  int32_t Token(int64_t place) const override;
  bool IsSpecial(int32_t) const override { return false; }
  bool has_all_tokens() const override { return false; }
  std::vector<std::string> ShortTexts() const override { return {}; }
  Status status() const override;

 private:
  json::Value Ask(std::string_view path, json::Value body) const;
  const std::vector<int32_t>& Tokens() const;

  const HttpClient client_;
  const std::string model_;
  mutable std::optional<Error> failed_;
  mutable std::map<int32_t, std::string> words_;  // the text of each token
  mutable std::vector<int32_t> tokens_;           // tokens to draw from; empty until first used
};

}  // namespace sluice::bench
