// Parses the hub's answers about a model. Parsing is strict, because the answers are untrusted and
// contain file names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct ModelInfo {
  std::string commit;              // 40 hexadecimal digits
  std::vector<std::string> files;  // safe relative paths (IsSafePath), in the hub's order
};

// Parses the body of GET /api/models/ID/revision/REVISION. kInvalidData for any other content.
Result<ModelInfo> ParseModelInfo(std::string_view text);

// Parses the body of GET /api/models?... and returns the valid ids; empty if it is not a list.
std::vector<std::string> ParseModelList(std::string_view text);

// The facts about a file in response headers.
struct FileInfo {
  std::string etag;   // letters, digits, - and _ only; also the name of the blob
  int64_t size = -1;  // in bytes
};

// Parses the values of X-Linked-Etag or ETag, and of X-Linked-Size or Content-Length. nullopt if
// they do not describe a file.
std::optional<FileInfo> ParseFileInfo(std::string_view etag, std::string_view size);

}  // namespace sluice
