#include "tokenizer/bert_normalizer.h"

#include "tokenizer/code_point_ranges.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/range_data.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

using unicode::IsInRanges;

// Uses the blocks listed in BERT's own code, which do not cover all Han characters.
bool IsChinese(char32_t c) {
  constexpr char32_t kBlocks[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                     {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                     {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return c >= kBlocks[0][0] && IsInRanges(kBlocks, std::size(kBlocks), c);
}

bool IsRemoved(char32_t c) {
  return c == 0 || (c != '\t' && c != '\n' && c != '\r' &&
                    IsInRanges(range_data::kRemoved, range_data::kRemovedSize, c));
}

bool IsMark(char32_t c) {
  return c >= 0x300 && IsInRanges(range_data::kMarks, range_data::kMarksSize, c);
}

// Rewrites `text` character by character: append(out, code point, bytes) appends the replacement,
// and returns false if it removes the character.
template <typename Append>
void RewriteEach(std::string& text, bool& at_start, const Append& append) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded decoded = unicode::Decode(text.data() + i);
    const std::string_view bytes = std::string_view(text).substr(i, decoded.length);
    if (!append(out, decoded.code_point, bytes) && i == 0) at_start = false;
    i += decoded.length;
  }
  text = std::move(out);
}

}  // namespace

void BertNormalizer::Run(std::string& text, bool& at_start) const {
  if (clean_text) {
    RewriteEach(text, at_start, [](std::string& out, char32_t c, std::string_view bytes) {
      if (IsRemoved(c)) return false;
      out.append(unicode::Properties(c) & unicode::kSpace ? std::string_view(" ") : bytes);
      return true;
    });
  }
  if (handle_chinese_chars) {
    RewriteEach(text, at_start, [](std::string& out, char32_t c, std::string_view bytes) {
      const bool is_chinese = IsChinese(c);
      if (is_chinese) out.push_back(' ');
      out.append(bytes);
      if (is_chinese) out.push_back(' ');
      return true;
    });
  }
  if (strip_accents) {
    text = unicode::Normalize(text, unicode::NormalForm::kNfd);
    RewriteEach(text, at_start, [](std::string& out, char32_t c, std::string_view bytes) {
      if (IsMark(c)) return false;
      out.append(bytes);
      return true;
    });
  }
  if (lowercase) text = unicode::Lowercase(text);
}

}  // namespace sluice
