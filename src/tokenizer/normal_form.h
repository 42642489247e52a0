// Unicode normal forms, with the tables of the library whose results are to be met (older than
// Unicode 12.1).
#pragma once

#include <string>
#include <string_view>

namespace sluice::unicode {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// REQUIRES: valid UTF-8. Time is linear but for the sorting of long runs of combining marks.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace sluice::unicode
