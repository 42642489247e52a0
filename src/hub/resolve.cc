#include "hub/resolve.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxRefBytes = 256;
constexpr size_t kCommitDigits = 40;

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::filesystem::path ExpandHome(const std::string& path, const std::string& home) {
  if (path == "~") return home;
  if (path.starts_with("~/")) return std::filesystem::path(home) / path.substr(2);
  return path;
}

bool IsCommit(std::string_view text) {
  return text.size() == kCommitDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// A branch or tag may hold slashes, but must not lead out of the refs folder.
bool IsRevisionName(std::string_view text) {
  if (text.empty() || text.size() > 255 || text.front() == '/' || text.back() == '/') return false;
  if (text.find("..") != std::string_view::npos || text.find("//") != std::string_view::npos)
    return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
           c == '/' || c == '+';
  });
}

bool IsFolder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// "models--org--name".
std::string CacheName(std::string_view id) {
  std::string name = "models--";
  for (const char c : id) name += c == '/' ? std::string("--") : std::string(1, c);
  return name;
}

std::vector<std::string> Snapshots(const std::filesystem::path& repository) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(repository / "snapshots", error), end;
       !error && entry != end; entry.increment(error)) {
    if (IsFolder(entry->path())) names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

tl::unexpected<Error> NotInCache(const ResolveOptions& options, std::string_view id,
                                 std::string_view what, const std::filesystem::path& cache) {
  const std::string revision =
      options.revision.empty() ? "" : fmt::format(" --revision {}", options.revision);
  const std::string target =
      options.download_dir.empty() ? "" : fmt::format(" --cache-dir {}", cache.string());
  return Fail(ErrorCode::kUnavailable,
              fmt::format("model {} is not on this machine: {}, and there is no folder {}. This "
                          "program does not download: run "
                          "`hf download {}{}{}`, or give the folder of a downloaded model, or its "
                          "cache with --download-dir or "
                          "HF_HOME",
                          id, what, options.argument, id, revision, target),
              "model");
}

// The commit that the repository's refs or its snapshots give, or "" with the reason in `why_not`.
Result<std::string> FindCommit(const std::filesystem::path& repository, const std::string& revision,
                               std::string& why_not) {
  const std::string name = revision.empty() ? "main" : revision;
  if (IsCommit(name)) {
    if (IsFolder(repository / "snapshots" / name)) return name;
    why_not = fmt::format("{} has no snapshot {}", repository.string(), name);
    return std::string();
  }
  const std::filesystem::path ref = repository / "refs" / name;
  const auto text = ReadFile(ref, kMaxRefBytes);
  if (text) {
    std::string commit = text->substr(0, text->find_last_not_of(" \r\n\t") + 1);
    if (!IsCommit(commit)) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: expected a commit of {} hexadecimal digits, found '{}'",
                              ref.string(), kCommitDigits, commit.substr(0, 60)),
                  "model");
    }
    if (IsFolder(repository / "snapshots" / commit)) return commit;
    why_not = fmt::format("{} names snapshot {}, which does not exist", ref.string(), commit);
    return std::string();
  }
  // A reference that is there and cannot be read is damage, and no reason to take another commit.
  if (text.error().code != ErrorCode::kNotFound) return tl::unexpected<Error>(text.error());
  const std::vector<std::string> snapshots = Snapshots(repository);
  if (revision.empty() && snapshots.size() == 1) return snapshots.front();
  why_not = fmt::format("{} does not exist", ref.string());
  if (!snapshots.empty())
    why_not += fmt::format(" (snapshots there: {}; choose one with --revision)",
                           fmt::join(snapshots, ", "));
  return std::string();
}

}  // namespace

HubEnvironment HubEnvironment::OfProcess() {
  return {.hf_hub_cache = FromEnvironment("HF_HUB_CACHE"),
          .huggingface_hub_cache = FromEnvironment("HUGGINGFACE_HUB_CACHE"),
          .hf_home = FromEnvironment("HF_HOME"),
          .xdg_cache_home = FromEnvironment("XDG_CACHE_HOME"),
          .home = FromEnvironment("HOME")};
}

std::filesystem::path HubEnvironment::CacheFolder() const {
  if (!hf_hub_cache.empty()) return ExpandHome(hf_hub_cache, home);
  if (!huggingface_hub_cache.empty()) return ExpandHome(huggingface_hub_cache, home);
  if (!hf_home.empty()) return ExpandHome(hf_home, home) / "hub";
  if (!xdg_cache_home.empty()) return ExpandHome(xdg_cache_home, home) / "huggingface/hub";
  return std::filesystem::path(home) / ".cache/huggingface/hub";
}

bool IsHubId(std::string_view text) {
  constexpr size_t kMaxPart = 96;
  const auto is_part = [](std::string_view part) {
    if (part.empty() || part.size() > kMaxPart) return false;
    if (part.front() == '-' || part.front() == '.' || part.back() == '-' || part.back() == '.')
      return false;
    if (part.find("--") != std::string_view::npos || part.find("..") != std::string_view::npos)
      return false;
    return std::all_of(part.begin(), part.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    });
  };
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return is_part(text);
  return is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

Result<ResolvedModel> ResolveModel(const ResolveOptions& options) {
  return ResolveModel(options, HubEnvironment::OfProcess());
}

Result<ResolvedModel> ResolveModel(const ResolveOptions& options,
                                   const HubEnvironment& environment) {
  const std::filesystem::path path = ExpandHome(options.argument, environment.home);
  if (!options.argument.empty() && IsFolder(path))
    return ResolvedModel{.folder = path, .name = options.argument};
  std::error_code error;
  if (!options.argument.empty() && std::filesystem::exists(path, error)) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} is a file; a model is a folder with config.json and safetensors files",
                    options.argument),
        "model");
  }
  std::string_view id = options.argument;
  while (id.ends_with('/')) id.remove_suffix(1);
  if (!IsHubId(id)) {
    return Fail(
        options.argument.empty() ? ErrorCode::kInvalidArgument : ErrorCode::kNotFound,
        fmt::format("model '{}' is neither a folder that exists nor a Hugging Face id (org/name)",
                    options.argument),
        "model");
  }
  if (!options.revision.empty() && !IsRevisionName(options.revision)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("revision '{}' is not the name of a branch, a tag or a commit",
                            options.revision),
                "revision");
  }
  const std::filesystem::path cache = options.download_dir.empty()
                                          ? environment.CacheFolder()
                                          : ExpandHome(options.download_dir, environment.home);
  const std::filesystem::path repository = cache / CacheName(id);
  if (!IsFolder(repository)) {
    return NotInCache(options, id, fmt::format("{} does not exist", repository.string()), cache);
  }
  std::string why_not;
  ASSIGN_OR_RETURN(const std::string commit, FindCommit(repository, options.revision, why_not));
  if (commit.empty()) return NotInCache(options, id, why_not, cache);
  return ResolvedModel{.folder = repository / "snapshots" / commit,
                       .name = options.argument,
                       .commit = commit,
                       .from_cache = true};
}

}  // namespace sluice
