// Test helper that finds files of the source tree. Linked into every *_test program. Only this
// object file contains the tree's location, so all others are identical in every checkout and a
// compiler cache can share them.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The absolute path of `relative`, for example "tests/data/server/model".
std::string SourcePath(std::string_view relative);

}  // namespace sluice
