// Parses the parts of a tokenizer.json, within limits.
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
  std::vector<AddedToken> added_tokens;                            // In file order.
  json::Value normalizer, pre_tokenizer, post_processor, decoder;  // Null if absent.
};

// kInvalidData for a damaged file, kUnsupported for an unsupported feature. The error names the
// path in the file.
Result<TokenizerJson> ReadTokenizerJson(std::string_view text);

// Reads an entry of added_tokens, or of tokenizer_config.json's added_tokens_decoder, where the key
// is the id. `where`: path for error messages.
Result<AddedToken> ReadAddedToken(const json::Value& value, int64_t id, const std::string& where);

}  // namespace sluice
