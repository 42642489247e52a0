#include "server/web/web_files.h"

#include <algorithm>

namespace sluice {

const WebFile* FindWebFile(std::string_view name) {
  const std::span<const WebFile> files = WebFiles();
  const auto found = std::ranges::find(files, name, &WebFile::name);
  return found == files.end() ? nullptr : &*found;
}

}  // namespace sluice
