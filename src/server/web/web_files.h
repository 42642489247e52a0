// The files of the page at / and of /docs, which are compiled into the program.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

struct WebFile {
  std::string_view name;  // "main.js"
  std::string_view content_type;
  std::string_view etag;  // of the content, with its quotes
  std::string_view content;
};

// All that lie in src/server/web, sorted by name. tools/embed_web.py writes it while the program is
// built.
std::span<const WebFile> WebFiles();

// The one of that name, or null.
const WebFile* FindWebFile(std::string_view name);

}  // namespace sluice
