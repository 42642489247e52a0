// The files of the pages at / and /docs, which are compiled into the program.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

struct WebFile {
  std::string_view name;  // for example "main.js"
  std::string_view content_type;
  std::string_view etag;  // hash of the content, in quotes
  std::string_view content;
};

// All files in src/server/web, sorted by name. Defined in code that tools/embed_web.py generates
// during the build.
std::span<const WebFile> WebFiles();

// Returns the file with this name, or null.
const WebFile* FindWebFile(std::string_view name);

}  // namespace sluice
