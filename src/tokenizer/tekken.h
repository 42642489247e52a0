// Reads tekken.json, the tokenizer in Mistral's own format, as the parts of a tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer_json.h"

namespace sluice {

struct TekkenTokenizer {
  TokenizerJson parts;
  // The content that tokenizer_config.json would have: the named special tokens and, for a known
  // version, a chat template equivalent to mistral-common's renderer of that version.
  json::Value config{json::Value::Object{}};
};

// Byte-level BPE without a list of merges: two adjacent tokens merge if their concatenated bytes
// are a token. The pair whose merged token has the lowest rank merges first. The special tokens
// have the first ids. kInvalidData for a damaged file; the error names the place in it.
Result<TekkenTokenizer> ReadTekkenJson(std::string_view text);

}  // namespace sluice
