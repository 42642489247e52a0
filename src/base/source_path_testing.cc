#include "base/source_path_testing.h"

namespace sluice {

std::string SourcePath(std::string_view relative) {
  return std::string(SLUICE_SOURCE_DIR "/").append(relative);
}

}  // namespace sluice
