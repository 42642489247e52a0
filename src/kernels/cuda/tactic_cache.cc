#include "kernels/cuda/tactic_cache.h"

#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace sluice::device {
namespace {

constexpr int64_t kFormat = 2;
constexpr uint64_t kMaxFileBytes = uint64_t{8} << 20;
constexpr size_t kMaxKeyBytes = 200;
constexpr size_t kMaxWayBytes = 40;
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 40;
constexpr auto kReadableByAll =
    std::filesystem::perms::owner_read | std::filesystem::perms::owner_write |
    std::filesystem::perms::group_read | std::filesystem::perms::others_read;

tl::unexpected<Error> Damaged(const std::string& what) {
  return Fail(ErrorCode::kInvalidData, what);
}

// Words are hexadecimal strings, because some JSON readers do not preserve 64-bit integers.
bool ParseWord(const json::Value& value, uint64_t& word) {
  if (!value.is_string()) return false;
  const std::string& text = value.as_string();
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, word, 16);
  return error == std::errc() && stopped == end;
}

Status ParseAlgorithm(const json::Value& value, Tactic& tactic) {
  const json::Value* words = value.Find("algorithm");
  if (words == nullptr || !words->is_array() || words->as_array().size() != tactic.algorithm.size())
    return Damaged("algorithm: expected 8 words");
  for (size_t i = 0; i < tactic.algorithm.size(); ++i) {
    if (!ParseWord(words->as_array()[i], tactic.algorithm[i]))
      return Damaged("algorithm: expected hexadecimal words");
  }
  const json::Value* workspace = value.Find("workspace_bytes");
  if (workspace == nullptr || !workspace->is_integer() || workspace->as_integer() < 0 ||
      workspace->as_integer() > kMaxWorkspaceBytes)
    return Damaged("workspace_bytes: expected a number of bytes");
  tactic.workspace_bytes = workspace->as_integer();
  return {};
}

Result<Tactic> ParseTactic(const json::Value& value) {
  Tactic tactic;
  if (const json::Value* way = value.Find("way"); way == nullptr) {
    RETURN_IF_ERROR(ParseAlgorithm(value, tactic));
  } else {
    if (!way->is_string() || way->as_string().empty() || way->as_string().size() > kMaxWayBytes)
      return Damaged(fmt::format("way: expected 1 to {} characters", kMaxWayBytes));
    tactic.way = way->as_string();
  }
  const json::Value* seconds = value.Find("seconds");
  if (seconds == nullptr || !seconds->is_number() || !(seconds->as_double() >= 0))
    return Damaged("seconds: expected a number");
  tactic.seconds = seconds->as_double();
  return tactic;
}

json::Value::Object OwnerMembers(const TacticOwner& owner) {
  return {{"format", json::Value(kFormat)},
          {"program", json::Value(SLUICE_VERSION)},
          {"device", json::Value(owner.device)},
          {"compute_capability", json::Value(owner.compute_capability)},
          {"library_version", json::Value(owner.library_version)}};
}

}  // namespace

TacticCache::TacticCache(std::filesystem::path path, TacticOwner owner)
    : path_(std::move(path)), owner_(std::move(owner)) {
  if (path_.empty()) return;
  const Result<std::string> text = ReadFile(path_, kMaxFileBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return;
  const Status status = text ? Read(*text) : Status(tl::unexpected(text.error()));
  if (!status) {
    tactics_.clear();
    LOG_WARNING("kernels", "{}: ignored, to be measured and written anew: {}", path_.string(),
                status.error().message);
  }
}

Status TacticCache::Read(const std::string& text) {
  ASSIGN_OR_RETURN(const json::Value file,
                   json::Parse(text, {.max_bytes = kMaxFileBytes, .max_depth = 8}));
  for (const auto& [name, expected] : OwnerMembers(owner_)) {
    const json::Value* found = file.Find(name);
    if (found == nullptr || !(*found == expected)) {
      return Damaged(fmt::format("{}: expected {}, found {}", name, json::Write(expected),
                                 found == nullptr ? "nothing" : json::Write(*found)));
    }
  }
  const json::Value* tactics = file.Find("tactics");
  if (tactics == nullptr || !tactics->is_object()) return Damaged("tactics: expected an object");
  if (tactics->as_object().size() > kMaxTactics)
    return Damaged(fmt::format("tactics: expected at most {}, found {}", kMaxTactics,
                               tactics->as_object().size()));
  for (const auto& [key, value] : tactics->as_object()) {
    if (key.size() > kMaxKeyBytes) return Damaged("tactics: a name is too long");
    auto tactic = ParseTactic(value);
    if (!tactic) return tl::unexpected(std::move(tactic).error().In(key));
    tactics_[key] = *tactic;
  }
  return {};
}

std::string TacticCache::Write() const {
  json::Value file(OwnerMembers(owner_));
  json::Value::Object tactics;
  for (const auto& [key, tactic] : tactics_) {
    json::Value::Object members;
    if (tactic.way.empty()) {
      json::Value::Array words;
      for (const uint64_t word : tactic.algorithm) words.emplace_back(fmt::format("{:x}", word));
      members.emplace_back("algorithm", std::move(words));
      members.emplace_back("workspace_bytes", tactic.workspace_bytes);
    } else {
      members.emplace_back("way", tactic.way);
    }
    members.emplace_back("seconds", tactic.seconds);
    tactics.emplace_back(key, std::move(members));
  }
  file.Set("tactics", std::move(tactics));
  return json::Write(file) + "\n";
}

const Tactic* TacticCache::Find(const std::string& key) const {
  const auto found = tactics_.find(key);
  return found == tactics_.end() ? nullptr : &found->second;
}

void TacticCache::Put(const std::string& key, const Tactic& tactic) {
  if (tactics_.size() >= kMaxTactics && !tactics_.contains(key)) return;
  tactics_[key] = tactic;
  changed_ = true;
}

Status TacticCache::Save() {
  if (path_.empty() || !changed_) return {};
  const auto fail = [&](const std::string& reason) {
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("{}: cannot be written ({}): what was measured is measured again at the "
                    "next start; name another file or make its folder writable",
                    path_.string(), reason));
  };
  std::error_code error;
  // If the path is a device, such as /dev/null, renaming a file would replace the device.
  if (std::filesystem::exists(path_, error) && !std::filesystem::is_regular_file(path_, error))
    return fail("it is no regular file");
  error.clear();
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), error);
  if (error) return fail(error.message());
  // The name is unique, so that two caches that save at the same time do not write to the same
  // file. A process id would not be unique: processes in different containers may have the same id.
  std::string unfinished = path_.string() + ".XXXXXX";
  const int file = mkstemp(unfinished.data());
  if (file < 0) return fail(std::generic_category().message(errno));
  close(file);
  {
    std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
    const std::string text = Write();
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) error = std::make_error_code(std::errc::io_error);
  }
  // Readable by all users who can read the folder, as other files are.
  if (!error) std::filesystem::permissions(unfinished, kReadableByAll, error);
  if (!error) std::filesystem::rename(unfinished, path_, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    return fail(error.message());
  }
  changed_ = false;
  return {};
}

std::filesystem::path DefaultTacticsPath() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != 0) return std::filesystem::path(cache) / "sluice/tactics.json";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != 0)
    return std::filesystem::path(home) / ".cache/sluice/tactics.json";
  return {};
}

}  // namespace sluice::device
