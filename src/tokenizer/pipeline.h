// All parts of a tokenizer.json; implements class Tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unigram_model.h"
#include "tokenizer/word_piece_model.h"

namespace sluice::tokenizer_internal {

// Thread safety: immutable after Create.
class Pipeline {
 public:
  // `late_tokens`: added tokens that are only listed in tokenizer_config.json.
  static Result<std::unique_ptr<Pipeline>> Create(TokenizerJson parts,
                                                  std::vector<AddedToken> late_tokens);

  // Like Tokenizer::EncodeWithin. If `is_exceeded` is not null, exceeding EncodeBudget is not an
  // error: sets *is_exceeded, and matches no pattern or token in the rest of the text.
  Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens,
                                      const std::function<bool()>& stop,
                                      bool* is_exceeded = nullptr) const;
  // Joins two texts and adds special tokens around both. The second function returns the number of
  // these special tokens.
  PairOfTexts JoinPair(std::vector<int32_t> first, std::vector<int32_t> second) const;
  size_t NumSpecialTokensOfPair() const;
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> TokenToId(std::string_view token) const;
  std::string_view IdToToken(int32_t id) const;
  std::string TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const { return Flag(id, kSpecial); }
  bool IsAdded(int32_t id) const { return added_.Has(id); }
  int32_t vocab_size() const { return vocab_size_; }

  // Whether the decoder consists of ByteLevel only. The text is then the concatenation of the
  // tokens' bytes, which BytesOf returns without a copy.
  bool HasByteLevelDecoder() const { return decoder_.IsByteLevel(); }
  std::string_view BytesOf(int32_t id) const;
  // Whether a token contributes to decoded text.
  bool IsVisible(int32_t id, bool skip_special_tokens) const {
    return Flag(id, kKnown) && !(skip_special_tokens && Flag(id, kSkipped));
  }

 private:
  static constexpr uint8_t kKnown = 1;
  static constexpr uint8_t kSpecial = 2;
  static constexpr uint8_t kSkipped = 4;  // The token is omitted with skip_special_tokens.

  using TextModel = std::variant<BpeModel, WordPieceModel, UnigramModel>;

  Pipeline(Normalizer normalizer, PreTokenizer pre_tokenizer, TextModel model,
           PostProcessor post_processor, Decoder decoder)
      : normalizer_(std::move(normalizer)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        model_(std::move(model)),
        post_processor_(std::move(post_processor)),
        decoder_(std::move(decoder)) {}

  Status Add(const std::vector<AddedToken>& tokens);
  void FindFlags(const std::vector<AddedToken>& tokens);
  bool Flag(int32_t id, uint8_t flag) const {
    return id >= 0 && id < vocab_size_ && (flags_[static_cast<size_t>(id)] & flag) != 0;
  }
  // Returns the spelling of a token as the decoder gets it.
  std::string_view DecodedSpelling(int32_t id) const;

  // The state of one encoding: the ids so far, and whether to stop.
  class Encoding;
  void EncodeGap(std::string_view text, bool at_start, Encoding& encoding) const;
  void EncodePieces(std::string_view text, bool at_start, Encoding& encoding) const;
  template <typename Model>
  void EncodePiecesBy(const Model& model, std::string_view text, bool at_start,
                      Encoding& encoding) const;
  void EncodePlain(std::string_view text, Encoding& encoding) const;
  const TokenTable& vocabulary() const {
    return std::visit([](const auto& model) -> const TokenTable& { return model.vocabulary(); },
                      model_);
  }

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TextModel model_;
  PostProcessor post_processor_;
  Decoder decoder_;
  TokenTable added_;             // Keyed by content.
  TokenTable added_normalized_;  // Keyed by the normalized form; only tokens whose normalized form
                                 // differs.
  AddedTokenFinder raw_tokens_, normalized_tokens_;
  int32_t vocab_size_ = 0;
  std::vector<uint8_t> flags_;  // Indexed by id.
  // Used if the decoder is ByteLevel: the bytes of all tokens, concatenated.
  std::string bytes_;
  std::vector<uint64_t> byte_offsets_;  // Indexed by id: offsets into bytes_, followed by its size.
};

}  // namespace sluice::tokenizer_internal
