// What the hub answers about a model, read strictly: it comes from elsewhere and names files.
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

// Reads the body of GET /api/models/ID/revision/REVISION. kInvalidData for anything that is not
// such an answer.
Result<ModelInfo> ParseModelInfo(std::string_view text);

// Reads the body of GET /api/models?...: ids that have the form of one; none where it is no list.
std::vector<std::string> ParseModelList(std::string_view text);

// What the headers of a file's answer say of it.
struct FileInfo {
  std::string etag;   // of letters, digits, - and _ : the name of its blob
  int64_t size = -1;  // in bytes
};

// From the values of X-Linked-Etag or ETag, and X-Linked-Size or Content-Length. None where they do
// not describe a file.
std::optional<FileInfo> ParseFileInfo(std::string_view etag, std::string_view size);

}  // namespace sluice
