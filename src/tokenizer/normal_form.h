// Unicode normal forms, with the tables of Hugging Face `tokenizers`, whose results must be
// reproduced (older than Unicode 12.1).
#pragma once

#include <string>
#include <string_view>

namespace sluice::unicode {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// REQUIRES: valid UTF-8. Time is linear but for the sorting of long runs of combining marks.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace sluice::unicode
