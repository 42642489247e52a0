// Fuzz target whose input is a tokenizer.json, a zero byte and a text. tokenizer_fuzz_test.cc runs
// it on mutated seeds in every build.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/utf8.h"
#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const auto tokenizer = sluice::Tokenizer::Parse(input.substr(0, cut));
  if (!tokenizer) return 0;
  const std::string_view text =
      cut == std::string_view::npos ? std::string_view("a text") : input.substr(cut + 1);
  const std::vector<int32_t> ids = (*tokenizer)->Encode(text, true);
  sluice::IncrementalDetokenizer detokenizer(**tokenizer, true);
  for (const int32_t id : ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    if (!sluice::IsValidUtf8(detokenizer.Push(id))) std::abort();
  }
  if (!sluice::IsValidUtf8((*tokenizer)->Decode(ids, false))) std::abort();
  const sluice::Result<sluice::Tokenizer::Pair> encoded = (*tokenizer)->EncodePair(text, text);
  if (!encoded) return 0;
  const sluice::Tokenizer::Pair& pair = *encoded;
  if (pair.ids.size() != pair.types.size()) std::abort();
  return 0;
}
