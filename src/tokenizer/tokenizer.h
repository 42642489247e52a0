// Converts text to token ids and back, as described by a checkpoint's tokenizer.json.
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
// vocabulary, post-processor and decoder. Results equal those of Hugging Face `tokenizers`.
// Unsupported features are refused when the file is loaded; the error names them.
//
// Thread safety: immutable after Load or Parse; methods may be called by several threads at the
// same time. Token ids are positions in the model's vocabulary. Unknown ids (padding rows of an
// embedding, negative numbers) are valid arguments everywhere and have no text.
class Tokenizer {
 public:
  // Reads `tokenizer.json` of a model folder and, if they exist, `tokenizer_config.json` and
  // `special_tokens_map.json` (special token names, further added tokens, chat template). kNotFound
  // if there is no tokenizer.json; kInvalidData for a damaged file; kUnsupported names the
  // unsupported feature.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::filesystem::path& model_folder);
  // As Load, from the text of a tokenizer.json only.
  static Result<std::unique_ptr<Tokenizer>> Parse(std::string_view tokenizer_json);
  ~Tokenizer();

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of `text` (UTF-8; an invalid sequence counts as U+FFFD). Added tokens in the text are
  // recognised, including special tokens. `add_special_tokens` runs the post-processor
  // (begin-of-text and the like). Time is linear in the text, times a logarithm of the longest
  // piece left by the pre-tokenizer.
  //
  // EncodeBudget also bounds the cost of a hostile file's patterns and look-ups. If a text exceeds
  // the bound, its rest is not matched, and a warning is logged.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens) const;
  // As Encode, for untrusted text: kInvalidArgument if it exceeds the bound. `stop`, if not null,
  // is called now and then: kCancelled once it returns true.
  Result<std::vector<int32_t>> EncodeWithin(std::string_view text, bool add_special_tokens,
                                            const std::function<bool()>& stop = nullptr) const;

  // Two texts as one input, for models that compare them: with the post-processor's special tokens
  // around both, and each token's type, the index of its text: 0 or 1.
  struct Pair {
    std::vector<int32_t> ids;
    std::vector<int8_t> types;
  };
  // The part of the texts that is kept, including special tokens.
  struct PairLimit {
    size_t tokens = 0;
    bool keeps_ends = false;  // keep the ends of the texts, not their beginnings
  };
  // With a limit, the longer text is truncated first, like transformers' "longest_first". Errors:
  // as EncodeWithin.
  Result<Pair> EncodePair(std::string_view first, std::string_view second,
                          const std::optional<PairLimit>& limit = std::nullopt) const;

  // The text of `ids`, always valid UTF-8: each maximal invalid part becomes one U+FFFD.
  // `skip_special_tokens` omits added tokens marked special. Unknown ids are omitted.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> TokenToId(std::string_view token) const;
  // The vocabulary's own spelling ("Ġthe"); "" if unknown. The view lives as long as the tokenizer.
  std::string_view IdToToken(int32_t id) const;
  // The bytes of this token alone ("" if unknown), possibly incomplete UTF-8.
  std::string TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  bool IsAdded(int32_t id) const;
  // One past the largest id, added tokens included.
  int32_t vocab_size() const;

  // tokenizer_config.json; an empty object if there is none.
  const json::Value& config() const;
  // The named special tokens of tokenizer_config.json, else of special_tokens_map.json.
  std::optional<std::string> bos_token() const;
  std::optional<std::string> eos_token() const;
  std::optional<std::string> pad_token() const;
  std::optional<std::string> unk_token() const;
  // Any special token by its key ("sep_token", ...).
  std::optional<std::string> named_token(std::string_view key) const;

 private:
  friend class IncrementalDetokenizer;
  Tokenizer();

  std::unique_ptr<tokenizer_internal::Pipeline> pipeline_;
  json::Value config_{json::Value::Object{}};
  json::Value special_tokens_map_{json::Value::Object{}};
};

}  // namespace sluice
