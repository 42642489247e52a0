// Finds the folder that a mistyped path may mean.
#pragma once

#include <string>

namespace sluice::cli {

// Returns an existing model folder whose path is similar to `path`, which does not exist; "" if
// there is none. Reads only the folders along the path.
std::string NearModelFolder(const std::string& path);

}  // namespace sluice::cli
