#include "hub/model_info.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "base/json.h"
#include "hub/model_files.h"
#include "hub/model_reference.h"

namespace sluice {
namespace {

constexpr size_t kMaxFiles = 100000;
constexpr size_t kMaxListed = 1000;
constexpr size_t kMaxEtagBytes = 200;
constexpr json::ParseLimits kInfoLimits = {.max_bytes = size_t{64} << 20, .max_depth = 32};

}  // namespace

Result<ModelInfo> ParseModelInfo(std::string_view text) {
  const auto bad = [](std::string_view what) {
    return Fail(ErrorCode::kInvalidData, std::string(what));
  };
  const auto body = json::Parse(text, kInfoLimits);
  if (!body || !body->is_object()) return bad("expected a JSON object that describes a model");
  ModelInfo info;
  const json::Value* commit = body->Find("sha");
  if (commit == nullptr || !commit->is_string() || !IsCommit(commit->as_string()))
    return bad("expected a commit of 40 hexadecimal digits as \"sha\"");
  info.commit = commit->as_string();
  const json::Value* files = body->Find("siblings");
  if (files == nullptr || !files->is_array() || files->as_array().size() > kMaxFiles)
    return bad("expected a list of files as \"siblings\"");
  for (const json::Value& file : files->as_array()) {
    const json::Value* name = file.Find("rfilename");
    if (name == nullptr || !name->is_string())
      return bad("expected the name of each file as \"rfilename\"");
    // Ignores unsafe names; files with these names are never read.
    if (IsSafePath(name->as_string())) info.files.push_back(name->as_string());
  }
  return info;
}

std::vector<std::string> ParseModelList(std::string_view text) {
  std::vector<std::string> ids;
  const auto body = json::Parse(text, kInfoLimits);
  if (!body || !body->is_array()) return ids;
  for (const json::Value& model : body->as_array()) {
    const json::Value* id = model.Find("id");
    if (id != nullptr && id->is_string() && IsHubId(id->as_string()) && ids.size() < kMaxListed)
      ids.push_back(id->as_string());
  }
  return ids;
}

std::optional<FileInfo> ParseFileInfo(std::string_view etag, std::string_view size) {
  FileInfo info;
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.starts_with('"')) etag.remove_prefix(1);
  if (etag.ends_with('"')) etag.remove_suffix(1);
  const bool plain = !etag.empty() && etag.size() <= kMaxEtagBytes &&
                     std::all_of(etag.begin(), etag.end(), [](char c) {
                       return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
                     });
  const auto read = std::from_chars(size.data(), size.data() + size.size(), info.size);
  if (!plain || read.ec != std::errc() || read.ptr != size.data() + size.size() || info.size < 0)
    return std::nullopt;
  info.etag = etag;
  return info;
}

}  // namespace sluice
