// Unicode normal forms, with the tables of Hugging Face `tokenizers` (older than Unicode 12.1), so
// that results are the same.
#pragma once

#include <string>
#include <string_view>

namespace sluice::unicode {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// REQUIRES: valid UTF-8. Time is linear, except for sorting long runs of combining marks.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace sluice::unicode
