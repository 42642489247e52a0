// BertNormalizer: rewrites a text as BERT does before cutting it into words.
#pragma once

#include <string>

namespace sluice {

struct BertNormalizer {
  bool clean_text = true;            // whether to remove control characters and replace white space
                                     // by spaces
  bool handle_chinese_chars = true;  // whether to put spaces around ideographs
  bool strip_accents = true;
  bool lowercase = true;

  // Normalizes `text`. Clears `at_start` if the text's first character is removed. REQUIRES: valid
  // UTF-8.
  void Run(std::string& text, bool& at_start) const;
};

}  // namespace sluice
