// docs/models.md, generated from the registry of families.
#pragma once

#include <string>

namespace sluice::cli {

std::string ModelsMarkdown();

}  // namespace sluice::cli
