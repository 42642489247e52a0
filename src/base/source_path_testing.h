// For tests: files of the source tree. Linked into every *_test program; the one place that knows
// where the tree was when the tests were built, so that all other objects are equal in every
// checkout and a compiler cache can share them.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The absolute path of `relative`, for example "tests/data/server/model".
std::string SourcePath(std::string_view relative);

}  // namespace sluice
