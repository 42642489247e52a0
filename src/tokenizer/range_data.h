// Sets of code points, in inclusive ranges that are sorted and apart; made by
// tools/tokenizers/make_range_tables.py.
#pragma once

#include <cstddef>

namespace sluice::range_data {

extern const char32_t kRemoved[][2];  // by BertNormalizer's clean_text; U+0000 too
extern const size_t kRemovedSize;
extern const char32_t kMarks[][2];  // by its strip_accents, once decomposed
extern const size_t kMarksSize;
extern const char32_t kExtends[][2];  // what belongs to the character before it: marks and joiners
extern const size_t kExtendsSize;

}  // namespace sluice::range_data
