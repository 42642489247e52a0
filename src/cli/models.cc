// The commands pull, list and rm, for the models in the Hugging Face cache.
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <string>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "hub/cached_models.h"

namespace sluice::cli {
namespace {

constexpr size_t kShownCommitDigits = 12;

std::filesystem::path CacheOf(const options::Settings& settings) {
  const HubEnvironment environment = HubEnvironment::OfProcess();
  const std::string given = settings.TextOr("download-dir");
  return given.empty() ? environment.CacheFolder() : ExpandHome(given, environment.home);
}

json::Value JsonOf(const CachedModel& model) {
  json::Value::Array snapshots;
  for (const CachedSnapshot& snapshot : model.snapshots) {
    json::Value::Array references(snapshot.references.begin(), snapshot.references.end());
    snapshots.push_back(json::Value::Object{{"commit", snapshot.commit},
                                            {"references", std::move(references)},
                                            {"complete", snapshot.complete}});
  }
  return json::Value::Object{{"id", model.id},
                             {"folder", model.folder.string()},
                             {"bytes", model.bytes},
                             {"changed", static_cast<int64_t>(model.changed)},
                             {"snapshots", std::move(snapshots)}};
}

// Returns "main 0123456789ab", or "0123456789ab (incomplete)".
std::string RevisionOf(const CachedSnapshot& snapshot) {
  std::string text = fmt::format("{}", fmt::join(snapshot.references, ","));
  if (!text.empty()) text += " ";
  text += snapshot.commit.substr(0, kShownCommitDigits);
  return snapshot.complete ? text : text + " (incomplete)";
}

// Asks before removing, because the model would have to be downloaded again. Scripts use --yes.
Status AskBeforeRemoving(const options::Settings& settings, const ModelPlace& place) {
  if (settings.Flag("yes")) return {};
  std::string what = place.id;
  if (!place.revision.empty()) what += " " + place.revision;
  const std::vector<CachedModel> models = ListCachedModels(place.cache);
  const auto model = std::find_if(models.begin(), models.end(),
                                  [&](const CachedModel& each) { return each.id == place.id; });
  if (model == models.end()) return {};  // nothing to remove; the caller's next step reports that
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("this removes {} ({}) from the disk: confirm with --yes", what,
                            FormatBytes(model->bytes)),
                "yes");
  }
  PrintError(fmt::format("remove {} ({}) from {}? [y/N] ", what, FormatBytes(model->bytes),
                         place.cache.string()));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return Fail(ErrorCode::kCancelled, "nothing was removed");
}

tl::unexpected<Error> WhichModel() {
  return Fail(ErrorCode::kInvalidArgument,
              "which model? Give its id (org/name) as first word after the command", "model");
}

}  // namespace

Result<int> RunPull(const options::Settings& settings) {
  const ModelArgument model = NamedModel(settings);
  if (model.name.empty()) return WhichModel();
  // Uses the name as given, because an address may include a revision.
  const std::string& name = settings.positionals().empty() ? model.name : settings.positionals()[0];
  ASSIGN_OR_RETURN(const ResolvedModel resolved,
                   FetchNamedModel(settings, name, settings.TextOr("revision"), ModelPart::kAll,
                                   /*update=*/true, {}));
  fmt::print("{}\n", resolved.folder.string());
  return 0;
}

Result<int> RunList(const options::Settings& settings) {
  const std::vector<CachedModel> models = ListCachedModels(CacheOf(settings));
  if (settings.Flag("json")) {
    json::Value::Array list;
    for (const CachedModel& model : models) list.push_back(JsonOf(model));
    fmt::print("{}\n", json::Write(json::Value(std::move(list))));
    return 0;
  }
  if (models.empty()) {
    PrintError(fmt::format("no models in {}\n", CacheOf(settings).string()));
    return 0;
  }
  size_t width = 5;
  for (const CachedModel& model : models) width = std::max(width, model.id.size());
  fmt::print("{:<{}}  {:>10}  {:<10}  {}\n", "MODEL", width, "SIZE", "CHANGED", "REVISIONS");
  for (const CachedModel& model : models) {
    std::vector<std::string> revisions;
    for (const CachedSnapshot& snapshot : model.snapshots)
      revisions.push_back(RevisionOf(snapshot));
    std::tm day = {};
    ::localtime_r(&model.changed, &day);
    fmt::print("{:<{}}  {:>10}  {:%Y-%m-%d}  {}\n", model.id, width, FormatBytes(model.bytes), day,
               fmt::join(revisions, ", "));
  }
  return 0;
}

Result<int> RunRemove(const options::Settings& settings) {
  if (settings.positionals().empty()) return WhichModel();
  ASSIGN_OR_RETURN(const ModelPlace place,
                   FindModelPlace({.argument = settings.positionals()[0],
                                   .download_dir = settings.TextOr("download-dir"),
                                   .revision = settings.TextOr("revision")},
                                  HubEnvironment::OfProcess()));
  if (place.id.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is a folder of yours: only models in the cache, which are named by "
                            "their ids, are removed",
                            place.folder.string()),
                "model");
  }
  RETURN_IF_ERROR(AskBeforeRemoving(settings, place));
  ASSIGN_OR_RETURN(const int64_t bytes, RemoveCachedModel(place.cache, place.id, place.revision));
  fmt::print("removed {}{}: {} freed\n", place.id,
             place.revision.empty() ? "" : " " + place.revision, FormatBytes(bytes));
  return 0;
}

}  // namespace sluice::cli
