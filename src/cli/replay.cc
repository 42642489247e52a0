#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/weights_digest.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/recording_options.h"
#include "cli/replay_load.h"
#include "cli/write_file.h"
#include "options/sources.h"
#include "recording/export.h"
#include "recording/minimize.h"
#include "recording/plan_facts.h"
#include "recording/recording.h"
#include "recording/replay.h"
#include "recording/replay_run.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {
namespace {

using recording::Difference;
using recording::RecordedEvent;
using recording::Recording;
using recording::ReplayResult;

std::string TextFact(const Recording& recorded, std::string_view name) {
  const json::Value* value = recorded.Fact(name);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

// Returns the recorded options, followed by this command's options, as settings of `sluice serve`.
Result<options::Settings> ServeSettings(const options::Settings& settings,
                                        const Recording& recorded) {
  std::vector<std::string> words;
  const json::Value* given = recorded.Fact("options");
  if (given != nullptr && given->is_array()) {
    for (const json::Value& word : given->as_array()) {
      if (word.is_string()) words.push_back(word.as_string());
    }
  }
  for (std::string& word : EngineWords(settings)) words.push_back(std::move(word));
  std::string model = settings.TextOr("recorded-model");
  if (model.empty()) model = TextFact(recorded, "model_folder");
  if (model.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the recording names no model: give --model", "model");
  }
  words.push_back("--model=" + model);
  const json::Value* dialect = recorded.Fact("dialect");
  const bool is_known = dialect != nullptr && dialect->is_integer() && dialect->as_integer() >= 0 &&
                        dialect->as_integer() <= 2;
  ASSIGN_OR_RETURN(options::Resolved resolved,
                   options::Resolve(words, {}, options::kServe,
                                    is_known ? static_cast<options::Dialect>(dialect->as_integer())
                                             : options::Dialect::kSluice));
  return std::move(resolved.settings);
}

// Returns the configuration of one recorded engine. Settings that depend on the machine and its
// memory are as recorded.
Result<EngineConfig> ReplayConfig(const options::Settings& serve, const ModelArgument& model,
                                  const std::vector<RecordedEvent>& events) {
  ASSIGN_OR_RETURN(EngineConfig config, MakeEngineConfig(serve, model));
  config.data_parallel_size = 1;
  config.first_engine = 0;
  config.adapters = {};
  config.offload = {};
  config.enable_sleep_mode = config.enable_weight_updates = false;
  // The draft tokens are read from the recording, but the plan still needs rows for these tokens.
  if (config.draft.is_given()) {
    config.speculation.method = SpeculationConfig::Method::kNgram;
    config.speculation.num_tokens = config.draft.num_tokens;
    config.draft = {};
  }
  const auto start = std::ranges::find(events, recording::EventKind::kStart, &RecordedEvent::kind);
  if (start == events.end()) return config;
  const auto event = recording::ReadEvent<recording::StartEvent>(start->fields);
  if (!event) return Fail(ErrorCode::kInvalidData, "the recorded start of an engine is damaged");
  ASSIGN_OR_RETURN(const recording::PlanSizes sizes, recording::ReadPlanSizes(event->plan));
  config.max_model_len = sizes.max_model_len;
  config.max_num_seqs = sizes.max_num_seqs;
  config.max_num_batched_tokens = sizes.max_num_batched_tokens;
  config.num_blocks_override = sizes.num_blocks;
  config.kv_cache_bytes.reset();
  config.memory_utilization.reset();
  return config;
}

// The findings for one engine.
struct EngineReplay {
  ReplayResult result;
  std::vector<uint64_t> smallest;  // with --minimize: the smallest set of requests that shows the
                                   // difference
  std::vector<std::string> smallest_ids;
  // The reason why minimizing failed; "": it succeeded, or there was nothing to minimize.
  std::string why_not_smaller;
};

// Whether two replays found the same kind of difference, in the same request if it concerns one.
bool IsSame(const Difference& a, const std::optional<Difference>& b) {
  return b && a.kind == b->kind && a.handle == b->handle;
}

void MinimizeRequests(recording::ReplayJournal& journal, const ReplaySeat& seat,
                      const std::vector<RecordedEvent>& events, int64_t most_trials,
                      EngineReplay& found) {
  std::vector<uint64_t> all;
  std::map<uint64_t, std::string> ids;
  for (const RecordedEvent& event : events) {
    if (event.kind != recording::EventKind::kAdd) continue;
    if (const auto add = recording::ReadEvent<recording::AddEvent>(event.fields)) {
      all.push_back(add->handle);
      ids[add->handle] = add->id;
    }
  }
  const Difference shown = *found.result.first;
  found.smallest = recording::Minimize(
      all,
      [&](const std::vector<uint64_t>& subset) {
        journal.set_options({.follows_steps = false,
                             .until = std::nullopt,
                             .only = {subset.begin(), subset.end()},
                             .stops_at_difference = false});
        journal.Replay(seat);
        return IsSame(shown, journal.result().first);
      },
      most_trials);
  for (const uint64_t handle : found.smallest) found.smallest_ids.push_back(ids[handle]);
}

Result<EngineReplay> ReplayEngine(const options::Settings& settings, const EngineConfig& config,
                                  const std::vector<RecordedEvent>& events, bool follows_steps) {
  EngineReplay found;
  const auto work = [&](recording::ReplayJournal& journal, const ReplaySeat& seat) {
    journal.set_options({.follows_steps = follows_steps,
                         .until = settings.Integer("until"),
                         .only = {},
                         .stops_at_difference = false});
    journal.Replay(seat);
    found.result = journal.result();
    if (!settings.Flag("minimize")) return;
    // A subset of the requests leads to other steps, so only answers and failures can be compared.
    if (follows_steps && found.result.first) {
      journal.set_options({.follows_steps = false,
                           .until = std::nullopt,
                           .only = {},
                           .stops_at_difference = false});
      journal.Replay(seat);
      if (!journal.result().first) {
        found.why_not_smaller = "no answer differs, and subsets of requests have other steps";
        return;
      }
      found.result.first = journal.result().first;
    }
    if (found.result.first) {
      MinimizeRequests(journal, seat, events, *settings.Integer("minimize-trials"), found);
    }
  };
  RETURN_IF_ERROR(recording::RunOnEngine(config, events, work));
  return found;
}

json::Value JsonOf(const EngineReplay& replay, uint16_t engine) {
  const ReplayResult& result = replay.result;
  json::Value value{json::Value::Object{}};
  value.Set("engine", static_cast<int64_t>(engine));
  value.Set("steps", result.num_steps);
  value.Set("requests", result.num_requests);
  value.Set("preemptions", result.num_preemptions);
  value.Set("prefix_hits", result.prefix_hits);
  value.Set("answers", result.num_answers);
  value.Set("different_answers", result.num_different_answers);
  value.Set("unchecked_answers", result.num_unchecked_answers);
  value.Set("tokens", result.num_tokens);
  if (!result.note.empty()) value.Set("note", result.note);
  if (result.first) {
    json::Value first{json::Value::Object{}};
    first.Set("text", result.first->Text());
    first.Set("request", result.first->id);
    first.Set("sequence", static_cast<int64_t>(result.first->sequence));
    first.Set("position", result.first->position);
    first.Set("expected", result.first->expected);
    first.Set("found", result.first->found);
    first.Set("step", result.first->step);
    value.Set("first_difference", std::move(first));
  }
  if (!replay.smallest_ids.empty()) {
    json::Value::Array ids;
    for (const std::string& id : replay.smallest_ids) ids.emplace_back(id);
    value.Set("smallest", std::move(ids));
  }
  return value;
}

void PrintResult(const EngineReplay& replay, const options::Settings& settings) {
  const ReplayResult& result = replay.result;
  fmt::print("replayed   {} steps, {} requests, {} preemptions, {} prompt tokens from the cache\n",
             result.num_steps, result.num_requests, result.num_preemptions, result.prefix_hits);
  fmt::print("answers    {} compared: {} equal, {} different; {} tokens\n", result.num_answers,
             result.num_answers - result.num_different_answers, result.num_different_answers,
             result.num_tokens);
  if (result.num_unchecked_answers > 0) {
    fmt::print(
        "           {} with constraints or adapters: their tokens were taken from the "
        "recording\n",
        result.num_unchecked_answers);
  }
  if (settings.Given("until")) {
    fmt::print("last plan  {} slices\n", result.last_plan.slices.size());
    for (const recording::SliceRecord& slice : result.last_plan.slices) {
      fmt::print("  request number {}, sequence {}: {} tokens from {}{}\n", slice.sequence.handle,
                 slice.sequence.index, slice.num_tokens, slice.first,
                 slice.samples ? ", sampling" : "");
    }
  }
  if (!result.note.empty()) fmt::print("stopped    {}\n", result.note);
  if (result.first) {
    fmt::print("different  {}\n", result.first->Text());
  } else if (result.note.empty()) {
    fmt::print("equal\n");
  }
  if (!replay.why_not_smaller.empty())
    fmt::print("smallest   not searched: {}\n", replay.why_not_smaller);
  if (!replay.smallest_ids.empty()) {
    fmt::print("smallest   {} requests show it: {}\n", replay.smallest_ids.size(),
               fmt::join(replay.smallest_ids, ", "));
  }
}

Result<int> ReplayEngines(const options::Settings& settings, const Recording& recorded) {
  if (recorded.is_of_hashes()) {
    return Fail(ErrorCode::kUnsupported,
                "the recording has only hashes of prompts and answers (--record-privacy hashes), "
                "so steps cannot be computed again; use it with --url or --export",
                "record-privacy");
  }
  ASSIGN_OR_RETURN(const options::Settings serve, ServeSettings(settings, recorded));
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(serve));
  if (const std::string digest = TextFact(recorded, "weights"); !digest.empty()) {
    ASSIGN_OR_RETURN(const std::string here, WeightsDigest(model.folder));
    if (here != digest) {
      PrintError(fmt::format("warning: the weights differ: {} in the recording, {} in {}\n", digest,
                             here, model.folder.string()));
    }
  }
  bool follows_steps = !settings.Flag("answers-only");
  if (follows_steps && !recorded.has_beginning()) {
    PrintError(
        "warning: the beginning of the recording was deleted by rotation: only answers are "
        "compared\n");
    follows_steps = false;
  }
  if (!settings.Given("log-level")) SetLogLevel(LogLevel::kWarning);
  int code = 0;
  json::Value::Array all;
  for (const auto& [stream, events] : recorded.streams()) {
    if (stream == 0) continue;
    ASSIGN_OR_RETURN(const EngineConfig config, ReplayConfig(serve, model, events));
    ASSIGN_OR_RETURN(const EngineReplay replay,
                     ReplayEngine(settings, config, events, follows_steps));
    const auto engine = static_cast<uint16_t>(stream - 1);
    if (settings.Flag("replay-json")) {
      all.push_back(JsonOf(replay, engine));
    } else {
      if (recorded.streams().rbegin()->first > 1) fmt::print("engine     {}\n", engine);
      PrintResult(replay, settings);
    }
    if (replay.result.first || !replay.result.note.empty()) code = 1;
  }
  if (settings.Flag("replay-json")) fmt::print("{}\n", json::Write(json::Value(std::move(all))));
  return code;
}

Result<int> Export(const options::Settings& settings, const Recording& recorded) {
  const auto& words = settings.positionals();
  if (words.size() != 2) {
    return Fail(ErrorCode::kInvalidArgument,
                "expected a folder and a file: sluice replay FOLDER FILE --export mooncake",
                "export");
  }
  const auto requests = recording::RequestsOf(recorded);
  std::string trace;
  if (*settings.Text("replay-export") == "mooncake") {
    trace = recording::MooncakeTrace(requests);
  } else if (recorded.is_of_hashes()) {
    trace = recording::AiperfTrace(requests, {});
  } else {
    ASSIGN_OR_RETURN(const options::Settings serve, ServeSettings(settings, recorded));
    ASSIGN_OR_RETURN(const ModelArgument model,
                     ResolveModelArgument(serve, ModelPart::kAllButWeights));
    ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                     Tokenizer::Load(model.tokenizer_folder));
    trace = recording::AiperfTrace(requests, [&](const std::vector<int32_t>& ids) {
      return tokenizer->Decode(ids, /*skip_special_tokens=*/false);
    });
  }
  RETURN_IF_ERROR(WriteResultFile("export", words[1], trace));
  fmt::print("{}: {} requests\n", words[1], requests.size());
  return 0;
}

}  // namespace

Result<int> RunReplay(const options::Settings& settings) {
  const auto& words = settings.positionals();
  if (words.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "expected the folder of a recording: sluice replay FOLDER", "record");
  }
  ASSIGN_OR_RETURN(const Recording recorded,
                   Recording::Open(words[0], settings.TextOr("recording-run")));
  for (const std::string& warning : recorded.warnings())
    PrintError(fmt::format("warning: {}\n", warning));
  if (settings.Given("replay-export")) return Export(settings, recorded);
  if (words.size() > 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a file is written only with --export", words[1]), "export");
  }
  if (settings.Given("url")) return ReplayLoad(settings, recorded);
  return ReplayEngines(settings, recorded);
}

}  // namespace sluice::cli
