// Text to token ids and back, as described by a checkpoint's tokenizer.json.
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

// A tokenizer.json of kind BPE, WordPiece or Unigram: added tokens, normalizer, pre-tokenizer,
// vocabulary, post-processor and decoder, with the results of Hugging Face `tokenizers`. What a
// file asks for and this class does not support is refused by name when the file is loaded.
//
// Thread safety: immutable after Load or Parse; every method may be called from any thread at once.
// Token ids are positions in the model's vocabulary; ids that the tokenizer does not know (padding
// rows of an embedding, negative numbers) are legal arguments everywhere and stand for nothing.
class Tokenizer {
 public:
  // Reads `tokenizer.json` of a model folder, and for names, late added tokens and the chat
  // template `tokenizer_config.json` and `special_tokens_map.json` where they exist. kNotFound if
  // there is no tokenizer.json; kInvalidData for a damaged file; kUnsupported names what is not
  // supported.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::filesystem::path& model_folder);
  // The same from the text of a tokenizer.json alone.
  static Result<std::unique_ptr<Tokenizer>> Parse(std::string_view tokenizer_json);
  ~Tokenizer();

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of `text` (UTF-8; an invalid sequence counts as U+FFFD). Added tokens inside the text
  // are recognised, special ones too. `add_special_tokens` runs the post-processor (begin-of-text
  // and the like). Time is linear in the text but for a logarithm in the longest piece that the
  // pre-tokenizer leaves whole.
  //
  // What the patterns and look-ups of a hostile file may cost is bounded too (EncodeBudget). A text
  // that exceeds the bound is not matched to its end, and a warning is logged.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens) const;
  // The same for text of others: kInvalidArgument if it exceeds the bound. `stop`, if there is one,
  // is asked now and then: kCancelled once it says so.
  Result<std::vector<int32_t>> EncodeWithin(std::string_view text, bool add_special_tokens,
                                            const std::function<bool()>& stop = nullptr) const;

  // Two texts in one, as models that compare them read them: with the special tokens that the
  // post-processor puts around both, and for each token the text that it counts to, 0 or 1.
  struct Pair {
    std::vector<int32_t> ids;
    std::vector<int8_t> types;
  };
  // How much of the texts is kept; the special tokens around them count.
  struct PairLimit {
    size_t tokens = 0;
    bool keeps_ends = false;  // else the beginnings
  };
  // With a limit, the longer text is cut first, as by transformers' "longest_first". Errors: those
  // of EncodeWithin.
  Result<Pair> EncodePair(std::string_view first, std::string_view second,
                          const std::optional<PairLimit>& limit = std::nullopt) const;

  // The text of `ids`, always valid UTF-8: bytes that are none become U+FFFD, one for each maximal
  // invalid part. `skip_special_tokens` leaves out the added tokens marked special. Unknown ids are
  // left out.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> TokenToId(std::string_view token) const;
  // The vocabulary's own spelling ("Ġthe"); "" if unknown. The view lives as long as the tokenizer.
  std::string_view IdToToken(int32_t id) const;
  // The bytes that this token alone stands for ("" if unknown); they need not be complete UTF-8.
  std::string TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  bool IsAdded(int32_t id) const;
  // One past the largest id, added tokens included.
  int32_t vocab_size() const;

  // tokenizer_config.json, or an empty object where there is none.
  const json::Value& config() const;
  // The named special tokens of tokenizer_config.json, else of special_tokens_map.json.
  std::optional<std::string> bos_token() const;
  std::optional<std::string> eos_token() const;
  std::optional<std::string> pad_token() const;
  std::optional<std::string> unk_token() const;
  // Any of them by its key ("sep_token", ...).
  std::optional<std::string> named_token(std::string_view key) const;

 private:
  friend class IncrementalDetokenizer;
  Tokenizer();

  std::unique_ptr<tokenizer_internal::Pipeline> pipeline_;
  json::Value config_{json::Value::Object{}};
  json::Value special_tokens_map_{json::Value::Object{}};
};

}  // namespace sluice
