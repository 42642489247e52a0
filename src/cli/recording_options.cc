#include "cli/recording_options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "cli/arithmetic_profile.h"
#include "cli/version.h"

namespace sluice::cli {
namespace {

// Groups of the table that describe the engine.
constexpr std::string_view kEngineGroups[] = {
    "Model",       "Cache and memory", "Scheduling",      "Speculative decoding",
    "CUDA graphs", "Machine",          "Several devices", "Images"};
// Options in these groups that are not recorded, because they contain paths or secrets.
constexpr std::string_view kNotRecorded[] = {"model", "hf-token", "download-dir",
                                             "kv-offloading-path"};

Result<std::optional<ReceiptSettings>> ReceiptsOf(const options::Settings& settings) {
  const auto file = settings.Text("receipts");
  if (!file) return std::nullopt;
  auto key = SigningKey::LoadPrivate(*file);
  if (!key) {
    Error error = std::move(key).error().In("--receipts");
    error.param = "receipts";
    return tl::unexpected(std::move(error));
  }
  return ReceiptSettings{
      *std::move(key), settings.Flag("receipts-with-tokens"),
      [settings](const EngineInfo& info) { return ArithmeticProfile(settings, info); }};
}

}  // namespace

std::vector<std::string> EngineWords(const options::Settings& settings) {
  std::vector<std::string> words;
  for (const options::Assignment* given : settings.given()) {
    const options::Option& option = *given->option;
    const auto is_in = [](const auto& list, std::string_view name) {
      return std::ranges::find(list, name) != std::end(list);
    };
    if (option.secret || option.effect != options::Effect::kActs ||
        !is_in(kEngineGroups, option.group) || is_in(kNotRecorded, option.name) ||
        given->words.empty())
      continue;
    const std::string flag = fmt::format("--{}", options::FlagName(option));
    if (option.type == options::Type::kStrings) {
      words.push_back(flag);
      words.insert(words.end(), given->words.begin(), given->words.end());
    } else {
      words.push_back(fmt::format("{}={}", flag, given->words.front()));
    }
  }
  return words;
}

Result<std::unique_ptr<recording::FlightRecorder>> StartRecorder(
    const options::Settings& settings, const ModelArgument& model,
    const std::filesystem::path& folder) {
  recording::RecorderSettings recorder;
  recorder.folder = folder;
  recorder.max_bytes = static_cast<uint64_t>(*settings.Integer("record-size"));
  recorder.hashes_only = settings.TextOr("record-privacy") == "hashes";
  json::Value& facts = recorder.facts;
  facts.Set("program", fmt::format("sluice {}", Version()));
  facts.Set("commit", Commit());
  facts.Set("dialect", static_cast<int>(settings.dialect()));
  facts.Set("model", model.name);
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(model.folder, ignored);
  facts.Set("model_folder", (ignored ? model.folder : absolute).string());
  json::Value::Array words;
  for (std::string& word : EngineWords(settings)) words.emplace_back(std::move(word));
  facts.Set("options", std::move(words));
  return recording::FlightRecorder::Start(std::move(recorder));
}

Status UseRecordingOptions(const options::Settings& settings, const ModelArgument& model,
                           Serving& serving) {
  ASSIGN_OR_RETURN(auto receipts, ReceiptsOf(settings));
  if (receipts) serving.IssueReceipts(*std::move(receipts));
  const auto folder = settings.Text("record");
  if (!folder) return {};
  ASSIGN_OR_RETURN(auto started, StartRecorder(settings, model, *folder));
  serving.Record(std::move(started));
  return {};
}

std::filesystem::path RecordingFolder(const options::Settings& settings, std::string_view model) {
  std::string name(model);
  std::ranges::replace(name, '/', '_');
  if (name.starts_with('.')) name.front() = '_';
  return std::filesystem::path(settings.TextOr("record")) / name;
}

Result<std::shared_ptr<const ReceiptIssuer>> ReceiptIssuerOf(const options::Settings& settings,
                                                             const std::string& digest,
                                                             const EngineInfo& info) {
  ASSIGN_OR_RETURN(const auto receipts, ReceiptsOf(settings));
  if (!receipts) return nullptr;
  return std::make_shared<const ReceiptIssuer>(
      ReceiptIssuer{.key = receipts->key,
                    .with_tokens = receipts->with_tokens,
                    .program = fmt::format("sluice {}", Version()),
                    .weights = digest,
                    .profile = receipts->profile(info)});
}

Status CheckRecordingOptions(const options::Settings& settings) {
  const auto receipts = ReceiptsOf(settings);
  if (!receipts) return tl::unexpected(receipts.error());
  return {};
}

}  // namespace sluice::cli
