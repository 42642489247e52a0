// The folder that a mistyped path may mean.
#pragma once

#include <string>

namespace sluice::cli {

// The path of a model's folder that exists and whose parts are near those of `path`, which does not
// exist; "" for none. Reads only the folders along the path.
std::string NearModelFolder(const std::string& path);

}  // namespace sluice::cli
