#include "base/model_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

bool IsBelow(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// Whether `path` is .../models--ORG--NAME/blobs/HASH.
bool IsBlob(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.filename() == "blobs" &&
         folder.parent_path().filename().string().starts_with("models--");
}

}  // namespace

Result<std::string> ReadModelFile(const fs::path& folder, const fs::path& name,
                                  uint64_t max_bytes) {
  const fs::path path = folder / name;
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) return ReadFile(path, max_bytes);  // reports the error
  const fs::path home = fs::canonical(folder, error);
  if (!error && (IsBelow(target, home) || IsBlob(target))) return ReadFile(target, max_bytes);
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{} links to {}, which is neither in the model's folder nor a blob of a "
                          "Hugging Face cache; put the file itself there",
                          path.string(), target.string()),
              name.string());
}

}  // namespace sluice
