// Converts text to token ids and back, as specified by a checkpoint's tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

namespace tokenizer_internal {
class Pipeline;
}

// A tokenizer.json of type BPE, WordPiece or Unigram: added tokens, normalizer, pre-tokenizer,
// vocabulary, post-processor and decoder. Results equal those of Hugging Face `tokenizers`. A file
// with an unsupported feature is refused when it is loaded; the error names the feature.
//
// Thread safety: immutable after Load or Parse; several threads may call methods at the same time.
// Unknown ids (padding rows of an embedding, negative numbers) are valid arguments everywhere and
// have no text.
class Tokenizer {
 public:
  // Reads tokenizer.json from a model folder and, if they exist, tokenizer_config.json and
  // special_tokens_map.json (names of special tokens, further added tokens, chat template).
  // kNotFound if there is no tokenizer.json; kInvalidData for a damaged file; kUnsupported names
  // the unsupported feature.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::filesystem::path& model_folder);
  // Like Load, but from the text of a tokenizer.json only.
  static Result<std::unique_ptr<Tokenizer>> Parse(std::string_view tokenizer_json);
  ~Tokenizer();

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the ids of `text` (UTF-8; an invalid sequence counts as U+FFFD). Recognizes added
  // tokens in the text, including special tokens. `add_special_tokens` runs the post-processor
  // (begin-of-text and the like). Time is linear in the text's length, times the logarithm of the
  // length of the longest piece from the pre-tokenizer.
  //
  // EncodeBudget also limits the cost of a hostile file's patterns and look-ups. If a text exceeds
  // the limit, patterns and tokens are not matched in the rest of the text, and a warning is
  // logged.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens) const;
  // Like Encode, for untrusted text: kInvalidArgument if it exceeds the limit. `stop`, if not null,
  // is called periodically; once it returns true, the result is kCancelled.
  Result<std::vector<int32_t>> EncodeWithin(std::string_view text, bool add_special_tokens,
                                            const std::function<bool()>& stop = nullptr) const;

  // Two texts as one input, for models that compare texts. Special tokens surround both texts. The
  // type of a token is the index of its text, 0 or 1.
  struct Pair {
    std::vector<int32_t> ids;
    std::vector<int8_t> types;
  };
  // The part of the two texts that is kept, including special tokens.
  struct PairLimit {
    size_t tokens = 0;
    bool keeps_ends = false;  // whether to keep the ends of the texts instead of their beginnings.
  };
  // A limit truncates the longer text first, like transformers' "longest_first". Errors: the same
  // as for EncodeWithin.
  Result<Pair> EncodePair(std::string_view first, std::string_view second,
                          const std::optional<PairLimit>& limit = std::nullopt) const;

  // Returns the text of `ids`, always valid UTF-8: each maximal invalid part becomes one U+FFFD.
  // `skip_special_tokens` omits added tokens that are marked special. Unknown ids are omitted.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> TokenToId(std::string_view token) const;
  // Returns the vocabulary's own spelling ("Ġthe"), or "" if the id is unknown. The view is valid
  // as long as the tokenizer.
  std::string_view IdToToken(int32_t id) const;
  // Returns the bytes of this single token, possibly incomplete UTF-8; "" if the id is unknown.
  std::string TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  bool IsAdded(int32_t id) const;
  // The largest id plus one, including added tokens.
  int32_t vocab_size() const;

  // The content of tokenizer_config.json; an empty object if the file does not exist.
  const json::Value& config() const;
  // The special token with the method's name in tokenizer_config.json, else in
  // special_tokens_map.json.
  std::optional<std::string> bos_token() const;
  std::optional<std::string> eos_token() const;
  std::optional<std::string> pad_token() const;
  std::optional<std::string> unk_token() const;
  // The special token whose key is `key` ("sep_token", ...).
  std::optional<std::string> named_token(std::string_view key) const;

 private:
  friend class IncrementalDetokenizer;
  Tokenizer();

  std::unique_ptr<tokenizer_internal::Pipeline> pipeline_;
  json::Value config_{json::Value::Object{}};
  json::Value special_tokens_map_{json::Value::Object{}};
};

}  // namespace sluice
