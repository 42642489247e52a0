// The version of this build.
#pragma once

#include <string>

namespace sluice::cli {

std::string Version();  // "0.1.0"
std::string Commit();   // of the sources, "unknown" outside a repository
std::string BuildType();

}  // namespace sluice::cli
