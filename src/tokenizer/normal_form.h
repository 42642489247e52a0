// Unicode normal forms. Uses the same tables as Hugging Face `tokenizers` (older than Unicode
// 12.1), so that results are the same.
#pragma once

#include <string>
#include <string_view>

namespace sluice::unicode {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Converts `text` to a normal form. Time is linear, except for sorting long runs of combining
// marks. REQUIRES: valid UTF-8.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace sluice::unicode
