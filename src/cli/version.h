// The version of this build.
#pragma once

#include <string>

namespace sluice::cli {

std::string Version();  // for example "0.1.0"
std::string Commit();   // commit of the sources; "unknown" outside a repository
std::string BuildType();

}  // namespace sluice::cli
