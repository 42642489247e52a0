// docs/parsers.md, generated from the table of parsers.
#pragma once

#include <string>

namespace sluice::cli {

std::string ParsersMarkdown();

}  // namespace sluice::cli
