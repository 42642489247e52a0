#include "tokenizer/pipeline.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "base/utf8.h"
#include "tokenizer/encode_budget.h"
#include "tokenizer/unicode.h"

namespace sluice::tokenizer_internal {
namespace {

// The added tokens, in file order. If two entries have the same content, the flags of the second
// and the id of the first apply.
class AddedTokens {
 public:
  explicit AddedTokens(const TokenTable& vocabulary) : vocabulary_(vocabulary) {}

  // Adds a token of tokenizer.json. Ids in the file are ignored, as in `tokenizers`: a token of the
  // vocabulary keeps its id; others get consecutive ids, starting at the vocabulary's size.
  Status AddNumbered(AddedToken token) {
    const int32_t in_file = token.id;
    token.id = IdOf(token.content).value_or(Next());
    if (token.id > kMaxTokenId) {
      return Fail(ErrorCode::kInvalidData, fmt::format("more tokens than {}", kMaxTokenId),
                  "added_tokens");
    }
    if (token.id != in_file && ++num_renumbered_ == 1) {
      LOG_WARNING("tokenizer",
                  "added token '{}' has id {} in added_tokens, but {} is used, as in the library; "
                  "the same may apply to other tokens",
                  token.content, in_file, token.id);
    }
    Add(std::move(token));
    return {};
  }

  // Adds a token of tokenizer_config.json. Its id applies only if the vocabulary does not contain
  // the token.
  Status AddWithId(AddedToken token) {
    if (const auto id = IdOf(token.content)) {
      token.id = *id;
      Add(std::move(token));
      return {};
    }
    const auto max_id =
        static_cast<int64_t>(vocabulary_.end_id()) + kMaxIdGap + static_cast<int64_t>(all_.size());
    if (token.id > max_id) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("added token '{}' has id {}, far beyond the vocabulary's last, {}",
                              token.content, token.id, vocabulary_.end_id() - 1),
                  "added_tokens_decoder");
    }
    const bool is_added = known_.Has(token.id);
    if (is_added || vocabulary_.Has(token.id)) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format("added token '{}' has id {}, which is '{}' in {}", token.content, token.id,
                      is_added ? known_.Spelling(token.id) : vocabulary_.Spelling(token.id),
                      is_added ? "added_tokens" : "model.vocab"),
          "added_tokens_decoder");
    }
    Add(std::move(token));
    return {};
  }

  std::vector<AddedToken> Take() { return std::move(all_); }

 private:
  std::optional<int32_t> IdOf(const std::string& content) const {
    if (const auto id = known_.Find(content)) return id;
    return vocabulary_.Find(content);
  }

  int32_t Next() const {
    const auto size = static_cast<int32_t>(vocabulary_.size());
    return known_.size() == 0 ? size : std::max(size, known_.end_id());
  }

  void Add(AddedToken token) {
    if (token.content.empty()) return;
    if (known_.Add(token.content, token.id) == TokenTable::AddResult::kAdded)
      return all_.push_back(std::move(token));
    for (AddedToken& earlier : all_) {
      if (earlier.content != token.content) continue;
      token.special |= earlier.special;
      earlier = std::move(token);
      return;
    }
  }

  const TokenTable& vocabulary_;
  TokenTable known_;  // spellings and ids of all_
  int num_renumbered_ = 0;
  std::vector<AddedToken> all_;
};

// Makes the model. Lets `pre_tokenizer` keep raw bytes if the model accepts them.
Result<BpeModel> MakeModel(BpeSpec spec, PreTokenizer& pre_tokenizer) {
  const bool byte_level = pre_tokenizer.EndsInByteLevel() && !spec.has_affixes() &&
                          BpeModel::HasAllBytes(spec.vocabulary);
  pre_tokenizer.SetKeepBytes(byte_level);
  return BpeModel::Create(std::move(spec), byte_level);
}
Result<WordPieceModel> MakeModel(WordPieceSpec spec, PreTokenizer&) {
  return WordPieceModel::Create(std::move(spec));
}
Result<UnigramModel> MakeModel(UnigramSpec spec, PreTokenizer&) {
  return UnigramModel::Create(std::move(spec));
}

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::Create(TokenizerJson parts,
                                                   std::vector<AddedToken> late_tokens) {
  AddedTokens added(VocabularyOf(parts.model));
  for (AddedToken& token : parts.added_tokens) RETURN_IF_ERROR(added.AddNumbered(std::move(token)));
  for (AddedToken& token : late_tokens) RETURN_IF_ERROR(added.AddWithId(std::move(token)));
  parts.added_tokens = added.Take();
  int32_t vocab_size = VocabularyOf(parts.model).end_id();
  for (const AddedToken& token : parts.added_tokens)
    vocab_size = std::max(vocab_size, token.id + 1);

  ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Parse(&parts.normalizer));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Parse(&parts.pre_tokenizer));
  ASSIGN_OR_RETURN(PostProcessor post_processor,
                   PostProcessor::Parse(&parts.post_processor, vocab_size));
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Parse(&parts.decoder));
  ASSIGN_OR_RETURN(TextModel model, std::visit(
                                        [&](auto& spec) -> Result<TextModel> {
                                          auto made = MakeModel(std::move(spec), pre_tokenizer);
                                          if (!made)
                                            return tl::unexpected<Error>(std::move(made).error());
                                          return TextModel(*std::move(made));
                                        },
                                        parts.model));

  std::unique_ptr<Pipeline> pipeline(new Pipeline(std::move(normalizer), std::move(pre_tokenizer),
                                                  std::move(model), std::move(post_processor),
                                                  std::move(decoder)));
  pipeline->vocab_size_ = vocab_size;
  RETURN_IF_ERROR(pipeline->Add(parts.added_tokens));
  return pipeline;
}

Status Pipeline::Add(const std::vector<AddedToken>& tokens) {
  std::vector<std::pair<std::string, AddedToken>> raw, normalized;
  for (const AddedToken& token : tokens) {
    added_.Add(token.content, token.id);
    if (!token.normalized) {
      raw.emplace_back(token.content, token);
      continue;
    }
    const EncodeBudget budget(token.content.size());
    std::string form = normalizer_.Normalize(token.content);
    if (budget.is_exceeded()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("the normalizer takes too many steps on the added token '{}'",
                              token.content.substr(0, 100)),
                  "normalizer");
    }
    if (form != token.content) added_normalized_.Add(form, token.id);
    if (form.empty()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("added token '{}' is empty after normalization", token.content),
                  "added_tokens");
    }
    normalized.emplace_back(std::move(form), token);
  }
  ASSIGN_OR_RETURN(raw_tokens_, AddedTokenFinder::Create(std::move(raw)));
  ASSIGN_OR_RETURN(normalized_tokens_, AddedTokenFinder::Create(std::move(normalized)));
  FindFlags(tokens);
  return {};
}

void Pipeline::FindFlags(const std::vector<AddedToken>& tokens) {
  flags_.assign(static_cast<size_t>(vocab_size_), 0);
  TokenTable specials;
  for (const AddedToken& token : tokens) {
    flags_[static_cast<size_t>(token.id)] |= kKnown;
    if (!token.special) continue;
    flags_[static_cast<size_t>(token.id)] |= kSpecial;
    specials.Add(token.content, token.id);
  }
  for (int32_t id = 0; id < vocab_size_; ++id) {
    uint8_t& flags = flags_[static_cast<size_t>(id)];
    if (vocabulary().Has(id)) flags |= kKnown;
    // Whether a token is skipped depends on the spelling that the decoder gets.
    if ((flags & kKnown) && specials.size() > 0 && specials.Find(DecodedSpelling(id)))
      flags |= kSkipped;
    if (!decoder_.IsByteLevel()) continue;
    byte_offsets_.push_back(bytes_.size());
    if (flags & kKnown) bytes_.append(decoder_.BytesOf(DecodedSpelling(id)));
  }
  byte_offsets_.push_back(bytes_.size());
}

std::string_view Pipeline::DecodedSpelling(int32_t id) const {
  return added_normalized_.Has(id) ? added_normalized_.Spelling(id) : IdToToken(id);
}

std::string_view Pipeline::BytesOf(int32_t id) const {
  if (!Flag(id, kKnown)) return {};
  const auto i = static_cast<size_t>(id);
  return std::string_view(bytes_).substr(byte_offsets_[i], byte_offsets_[i + 1] - byte_offsets_[i]);
}

std::optional<int32_t> Pipeline::TokenToId(std::string_view token) const {
  if (const std::optional<int32_t> id = added_.Find(token)) return id;
  return vocabulary().Find(token);
}

std::string_view Pipeline::IdToToken(int32_t id) const {
  return added_.Has(id) ? added_.Spelling(id) : vocabulary().Spelling(id);
}

std::string Pipeline::TokenBytes(int32_t id) const {
  if (!Flag(id, kKnown)) return {};
  if (decoder_.IsByteLevel()) return std::string(BytesOf(id));
  return decoder_.BytesOf(DecodedSpelling(id));
}

class Pipeline::Encoding {
 public:
  explicit Encoding(const std::function<bool()>& stop) : stop_(stop) {}

  // Whether to stop before encoding a piece of this many bytes.
  bool Stops(size_t bytes) {
    if (!stop_ || stopped_) return stopped_;
    bytes_ += bytes;
    if (bytes_ < kBytesBetween) return false;
    bytes_ = 0;
    return stopped_ = stop_();
  }

  bool has_stopped() const { return stopped_; }

  std::vector<int32_t> ids;

 private:
  static constexpr size_t kBytesBetween = size_t{64} << 10;

  const std::function<bool()>& stop_;
  size_t bytes_ = 0;  // number of bytes encoded since the last call of stop_
  bool stopped_ = false;
};

void Pipeline::EncodePlain(std::string_view text, Encoding& encoding) const {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    unicode::AppendLossy(repaired, text);
    text = repaired;
  }
  encoding.ids.reserve(text.size() / 3 + 8);
  raw_tokens_.Split(
      text, [&](std::string_view part) { EncodeGap(part, part.data() == text.data(), encoding); },
      [&](int32_t id) { encoding.ids.push_back(id); });
}

Result<std::vector<int32_t>> Pipeline::Encode(std::string_view text, bool add_special_tokens,
                                              const std::function<bool()>& stop,
                                              bool* is_exceeded) const {
  const EncodeBudget budget(text.size());
  Encoding encoding(stop);
  EncodePlain(text, encoding);
  if (encoding.has_stopped()) return Fail(ErrorCode::kCancelled, "nobody waits for the tokens");
  if (is_exceeded != nullptr) {
    *is_exceeded = budget.is_exceeded();
  } else if (budget.is_exceeded()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "the tokenizer of this model takes more steps on this text of {} bytes than allowed "
            "for its length; shorten it, especially long repetitions of the same characters",
            text.size()));
  }
  if (add_special_tokens) post_processor_.Apply(encoding.ids);
  return std::move(encoding.ids);
}

PairOfTexts Pipeline::JoinPair(std::vector<int32_t> first, std::vector<int32_t> second) const {
  return post_processor_.ApplyPair(std::move(first), std::move(second));
}

size_t Pipeline::NumSpecialTokensOfPair() const {
  return post_processor_.ApplyPair({}, {}).ids.size();
}

void Pipeline::EncodeGap(std::string_view text, bool at_start, Encoding& encoding) const {
  std::string normalized;
  if (!normalizer_.IsIdentity()) {
    normalized = normalizer_.Normalize(text, &at_start);
    text = normalized;
  }
  normalized_tokens_.Split(
      text,
      [&](std::string_view part) {
        EncodePieces(part, at_start && part.data() == text.data(), encoding);
      },
      [&](int32_t id) { encoding.ids.push_back(id); });
}

void Pipeline::EncodePieces(std::string_view text, bool at_start, Encoding& encoding) const {
  std::visit([&](const auto& model) { EncodePiecesBy(model, text, at_start, encoding); }, model_);
}

template <typename Model>
void Pipeline::EncodePiecesBy(const Model& model, std::string_view text, bool at_start,
                              Encoding& encoding) const {
  const auto encode = [&](std::string_view piece, const char* end) {
    if (!encoding.Stops(piece.size())) model.Encode(piece, end, encoding.ids);
  };
  const char* const end = text.data() + text.size();
  if (const std::optional<SplitPattern> pattern = pre_tokenizer_.only_pattern()) {
    ScanPieces(*pattern, text, [&](std::string_view piece) { encode(piece, end); });
  } else if (pre_tokenizer_.IsIdentity()) {
    encode(text, end);
  } else {
    Pieces pieces;
    pre_tokenizer_.Run(text, at_start, pieces);
    const char* const pieces_end = pieces.text.data() + pieces.text.size();
    for (const Pieces::Piece& piece : pieces.pieces)
      encode(pieces.text.substr(piece.begin, piece.end - piece.begin), pieces_end);
  }
}

std::string Pipeline::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  if (decoder_.IsByteLevel()) {
    std::string bytes;
    for (const int32_t id : ids) {
      if (IsVisible(id, skip_special_tokens)) bytes.append(BytesOf(id));
    }
    unicode::AppendLossy(text, bytes);
    return text;
  }
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (IsVisible(id, skip_special_tokens)) tokens.emplace_back(DecodedSpelling(id));
  }
  return decoder_.Decode(std::move(tokens));
}

}  // namespace sluice::tokenizer_internal
