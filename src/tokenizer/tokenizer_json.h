// The parts of a tokenizer.json, read within limits.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/unigram_model.h"
#include "tokenizer/word_piece_model.h"

namespace sluice {

inline constexpr size_t kMaxTokenizerJsonBytes = 256 << 20;
inline constexpr size_t kMaxAddedTokens = 1 << 18;
inline constexpr size_t kMaxMerges = 1 << 23;

using ModelSpec = std::variant<BpeSpec, WordPieceSpec, UnigramSpec>;

inline const TokenTable& VocabularyOf(const ModelSpec& spec) {
  return std::visit([](const auto& kind) -> const TokenTable& { return kind.vocabulary; }, spec);
}

struct TokenizerJson {
  ModelSpec model;
  std::vector<AddedToken> added_tokens;                            // In the order of the file.
  json::Value normalizer, pre_tokenizer, post_processor, decoder;  // Null where absent.
};

// kInvalidData for a damaged file, kUnsupported for one that asks for what is not supported; both
// say where.
Result<TokenizerJson> ReadTokenizerJson(std::string_view text);

// One entry of added_tokens, or of added_tokens_decoder in tokenizer_config.json, where the id is
// the key. `where`: for errors.
Result<AddedToken> ReadAddedToken(const json::Value& value, int64_t id, const std::string& where);

}  // namespace sluice
