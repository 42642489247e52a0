#include "hub/fetch.h"

#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "hub/model_download.h"
#include "hub/repository_cache.h"

namespace sluice {
namespace {

// Whether no file is missing, or only one that not every model has.
bool IsEnough(const std::vector<std::string>& missing) {
  return missing.empty() || (missing.size() == 1 && (missing[0] == "tokenizer.json" ||
                                                     missing[0] == "generation_config.json"));
}

tl::unexpected<Error> Offline(const ModelPlace& place, std::string_view what) {
  return Fail(ErrorCode::kUnavailable,
              fmt::format("model {} is not on this machine: {}, there is no folder {}, and "
                          "HF_HUB_OFFLINE forbids downloads",
                          place.id, what, place.name),
              "model");
}

// Whether an id was more likely meant as a folder, because its parent folder exists.
bool MayBeMeantAsFolder(const ModelPlace& place) {
  const std::filesystem::path parent = std::filesystem::path(place.name).parent_path();
  std::error_code error;
  return parent.empty() || std::filesystem::is_directory(parent, error);
}

}  // namespace

Result<ResolvedModel> FetchModel(const FetchOptions& options) {
  return FetchModel(options, HubEnvironment::OfProcess());
}

Result<ResolvedModel> FetchModel(const FetchOptions& options, const HubEnvironment& environment) {
  ASSIGN_OR_RETURN(const ModelPlace place, FindModelPlace(options.model, environment));
  if (place.id.empty()) return ResolvedModel{.folder = place.folder, .name = place.name};
  std::string why_not;
  ASSIGN_OR_RETURN(const std::optional<ResolvedModel> here, FindSnapshot(place, why_not));
  std::vector<std::string> missing;
  if (here) missing = MissingFiles(here->folder, options.part);
  if (here && missing.empty() && !options.update) return *here;
  if (environment.offline) {
    if (here && IsEnough(missing)) return *here;
    if (!here) return Offline(place, why_not);
    return Offline(place,
                   fmt::format("{} has no {}", here->folder.string(), fmt::join(missing, ", ")));
  }
  if (options.before_download) RETURN_IF_ERROR(options.before_download());
  auto commit = DownloadModel(place, options, environment);
  if (!commit) {
    if (here && IsEnough(missing) && !options.update) {
      LOG_WARNING("download", "{}; continuing without {}", commit.error().message,
                  fmt::join(missing, ", "));
      return *here;
    }
    Error error = std::move(commit).error();
    if (!here && MayBeMeantAsFolder(place))
      error.message = fmt::format("there is no folder {} here, and {}", place.name, error.message);
    return tl::unexpected<Error>(std::move(error));
  }
  return ResolvedModel{.folder = RepositoryCache(place.cache, place.id).Snapshot(*commit),
                       .name = place.name,
                       .commit = *commit,
                       .from_cache = true};
}

}  // namespace sluice
