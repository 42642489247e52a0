// For tests: files of the source tree. Linked into every *_test program. The only object that
// contains the tree's location, so that all others are identical in every checkout and a compiler
// cache can share them.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The absolute path of `relative`, for example "tests/data/server/model".
std::string SourcePath(std::string_view relative);

}  // namespace sluice
