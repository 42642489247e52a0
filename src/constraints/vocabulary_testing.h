// Small vocabularies for tests.
#pragma once

#include <initializer_list>
#include <string>

#include "constraints/vocabulary.h"

namespace sluice {

// Returns a vocabulary of all bytes, then `more`, then the end token, then two padding rows.
inline Vocabulary ByteVocabulary(std::initializer_list<const char*> more = {}) {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token : more) vocabulary.tokens.emplace_back(token);
  vocabulary.tokens.emplace_back("<end>");
  vocabulary.end_tokens = {static_cast<int32_t>(vocabulary.tokens.size()) - 1};
  vocabulary.size = static_cast<int32_t>(vocabulary.tokens.size()) + 2;
  return vocabulary;
}

}  // namespace sluice
