#include "hub/resolve.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "hub/flush_mark.h"
#include "hub/model_reference.h"
#include "hub/repository_cache.h"

namespace sluice {
namespace {

tl::unexpected<Error> NotInCache(const ModelPlace& place, std::string_view what) {
  const std::string revision =
      place.revision.empty() ? "" : fmt::format(" --revision {}", place.revision);
  return Fail(ErrorCode::kUnavailable,
              fmt::format("model {} is not on this machine: {}, and there is no folder {}; "
                          "`sluice pull {}{}` downloads it",
                          place.id, what, place.name, place.id, revision),
              "model");
}

// Calls SettleBlobs for a snapshot that is given as a folder.
Status SettleFolder(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path snapshots = std::filesystem::canonical(folder, error).parent_path();
  const std::filesystem::path repository = snapshots.parent_path();
  const std::string id = IdOfCacheFolder(repository.filename().string());
  if (error || id.empty() || snapshots.filename() != "snapshots") return {};
  return SettleBlobs(RepositoryCache(repository.parent_path(), id));
}

}  // namespace

Result<ModelPlace> FindModelPlace(const ResolveOptions& options,
                                  const HubEnvironment& environment) {
  const std::filesystem::path path = ExpandHome(options.argument, environment.home);
  std::error_code error;
  if (!options.argument.empty() && std::filesystem::is_directory(path, error)) {
    RETURN_IF_ERROR(SettleFolder(path));
    return ModelPlace{.folder = path, .name = options.argument};
  }
  if (!options.argument.empty() && std::filesystem::exists(path, error)) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} is a file; a model is a folder with config.json and safetensors files",
                    options.argument),
        "model");
  }
  ModelPlace place{.name = options.argument, .revision = options.revision};
  std::string_view id = options.argument;
  while (id.ends_with('/')) id.remove_suffix(1);
  place.id = id;
  if (!IsHubId(id)) {
    ASSIGN_OR_RETURN(const std::string endpoint, environment.Endpoint());
    const std::optional<ModelReference> reference = ParseModelAddress(id, endpoint);
    if (!reference) {
      return Fail(options.argument.empty() ? ErrorCode::kInvalidArgument : ErrorCode::kNotFound,
                  fmt::format("model '{}' is neither a folder that exists nor a Hugging Face id "
                              "(org/name), nor the address of a model's page",
                              options.argument),
                  "model");
    }
    place.id = place.name = reference->id;
    if (place.revision.empty()) place.revision = reference->revision;
  }
  if (!place.revision.empty() && !IsRevisionName(place.revision)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("revision '{}' is not the name of a branch, a tag or a commit", place.revision),
        "revision");
  }
  place.cache = options.download_dir.empty() ? environment.CacheFolder()
                                             : ExpandHome(options.download_dir, environment.home);
  return place;
}

Result<std::optional<ResolvedModel>> FindSnapshot(const ModelPlace& place, std::string& why_not) {
  const RepositoryCache repository(place.cache, place.id);
  RETURN_IF_ERROR(SettleBlobs(repository));
  ASSIGN_OR_RETURN(std::string commit, repository.FindCommit(place.revision, why_not));
  if (commit.empty()) return std::optional<ResolvedModel>();
  return std::optional(ResolvedModel{.folder = repository.Snapshot(commit),
                                     .name = place.name,
                                     .commit = std::move(commit),
                                     .from_cache = true});
}

Result<ResolvedModel> ResolveModel(const ResolveOptions& options) {
  return ResolveModel(options, HubEnvironment::OfProcess());
}

Result<ResolvedModel> ResolveModel(const ResolveOptions& options,
                                   const HubEnvironment& environment) {
  ASSIGN_OR_RETURN(const ModelPlace place, FindModelPlace(options, environment));
  if (place.id.empty()) return ResolvedModel{.folder = place.folder, .name = place.name};
  std::string why_not;
  ASSIGN_OR_RETURN(std::optional<ResolvedModel> model, FindSnapshot(place, why_not));
  if (!model) return NotInCache(place, why_not);
  return *std::move(model);
}

}  // namespace sluice
