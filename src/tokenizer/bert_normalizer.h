// BertNormalizer: what BERT does to a text before it is cut into words.
#pragma once

#include <string>

namespace sluice {

struct BertNormalizer {
  bool clean_text = true;            // control characters go, white space becomes spaces
  bool handle_chinese_chars = true;  // spaces around ideographs
  bool strip_accents = true;
  bool lowercase = true;

  // REQUIRES: valid UTF-8. `at_start` is cleared where the text's first character is gone.
  void Run(std::string& text, bool& at_start) const;
};

}  // namespace sluice
