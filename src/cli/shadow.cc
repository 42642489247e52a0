#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/scratch_folder.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/remote.h"
#include "cli/serve_lines.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "cli/write_file.h"
#include "hardware/memory.h"
#include "shadow/comparer.h"
#include "shadow/relay.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kReportInterval = std::chrono::seconds(10);
constexpr auto kLookInterval = std::chrono::milliseconds(50);
constexpr std::chrono::seconds kShadowEndTime(60);
constexpr int64_t kShadowSequences = 8;
constexpr int64_t kShadowCacheBytes = int64_t{1} << 30;
constexpr uint64_t kForwardedBytes = uint64_t{1} << 30;

std::string SocketIn(const ScratchFolder& folder) {
  return (folder.path() / "model.sock").string();
}

// Answers are scored one after another, so little memory suffices. The user's own limits take
// precedence.
void TakeLittleMemory(const options::Settings& settings, EngineConfig& config) {
  if (!config.max_num_seqs) config.max_num_seqs = kShadowSequences;
  for (const std::string_view name : {"gpu-memory-utilization", "kv-cache-memory-bytes",
                                      "num-gpu-blocks-override", "max-model-len"}) {
    if (settings.Given(name)) return;
  }
  config.kv_cache_bytes = std::min(kShadowCacheBytes, ReadMemoryLimits().available_bytes / 8);
}

// The reference: the same model in float32, from the checkpoint's own weights.
EngineConfig ReferenceOf(EngineConfig config) {
  config.dtype = ElementType::kF32;
  config.kv_cache_dtype = ElementType::kF32;
  config.load_quantization = {};
  return config;
}

Status WriteReports(const std::filesystem::path& folder, const shadow::Findings& findings) {
  const std::pair<const char*, std::string> reports[] = {
      {"report.json", json::Write(findings.Json()) + "\n"}, {"report.html", findings.Page()}};
  for (const auto& [name, text] : reports) {
    const std::filesystem::path made = folder / fmt::format(".{}", name);
    RETURN_IF_ERROR(WriteResultFile("report", made, text));
    std::error_code error;
    std::filesystem::rename(made, folder / name, error);
    if (error) return tl::unexpected(WriteFailure("report", folder / name, error.value()));
  }
  return {};
}

Status MakeReportFolder(const std::filesystem::path& folder) {
  std::error_code error;
  const bool is_there = std::filesystem::is_directory(folder, error);
  if (is_there) return {};
  std::filesystem::create_directories(folder, error);
  if (!error) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all,
                                 std::filesystem::perm_options::replace, error);
  }
  if (error) return tl::unexpected(WriteFailure("report", folder, error.value()));
  return {};
}

// The shutdown after the first signal: waits for requests in progress and queued comparisons.
class Ending {
 public:
  void Begin() {
    const MutexLock lock(mutex_);
    has_begun_ = true;
    changed_.NotifyAll();
  }
  // Returns whether the shutdown has begun.
  bool WaitUntil(Clock::time_point until) {
    MutexLock lock(mutex_);
    while (!has_begun_) {
      if (!changed_.WaitUntil(lock, until)) break;
    }
    return has_begun_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool has_begun_ GUARDED_BY(mutex_) = false;
};

// The threads that compare answers.
class Workers {
 public:
  Workers(shadow::ExchangeQueue& queue, shadow::Comparer& comparer, int64_t count) : queue_(queue) {
    for (int64_t i = 0; i < count; ++i) {
      ++num_running_;
      threads_.push_back(StartThread("compare", [this, &comparer] {
        while (auto exchange = queue_.Take()) {
          RunGuarded("shadow", "a comparison", [&] { comparer.Compare(*exchange); });
        }
        --num_running_;
      }));
    }
  }
  ~Workers() {
    queue_.Close();
    queue_.Clear();
    for (std::thread& thread : threads_) thread.join();
  }
  bool are_done() const { return num_running_ == 0; }

 private:
  shadow::ExchangeQueue& queue_;
  std::atomic<int64_t> num_running_{0};
  std::vector<std::thread> threads_;
};

// Writes reports until the shutdown begins; then waits for requests in progress and queued
// comparisons.
Status Watch(const options::Settings& settings, Ending& ending, shadow::Relay& relay,
             shadow::ExchangeQueue& queue, const Workers& workers,
             const shadow::Findings& findings) {
  const std::filesystem::path folder = settings.TextOr("shadow-report");
  RETURN_IF_ERROR(WriteReports(folder, findings));
  while (!ending.WaitUntil(Clock::now() + kReportInterval)) {
    const Status written = CatchToResult([&] { return WriteReports(folder, findings); });
    if (!written) LOG_ERROR("shadow", "{}", written.error().message);
  }
  relay.BeginDrain();
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(*settings.Number("shadow-patience")));
  while (relay.num_exchanges() > 0 && Clock::now() < end)
    std::this_thread::sleep_for(kLookInterval);
  const size_t waiting = queue.Close();
  if (waiting > 0) LOG_INFO("shadow", "{} answers are still to be compared", waiting);
  while (!workers.are_done() && Clock::now() < end) std::this_thread::sleep_for(kLookInterval);
  return {};
}

ServerConfig OwnServer(const options::Settings& settings, const ModelArgument& model,
                       const ScratchFolder& folder) {
  ServerConfig config = MakeServerConfig(settings, model);
  config.uds = SocketIn(folder);
  config.disable_access_log = true;
  config.log_stats_seconds = 0;
  config.api_keys.clear();
  config.api_key_file.clear();
  return config;
}

}  // namespace

Result<int> RunShadow(const options::Settings& settings) {
  const auto start = Clock::now();
  BlockSignals(kWatched);
  // Only the user may read reports, because they quote prompts and answers.
  umask(S_IRWXG | S_IRWXO);
  const auto address = settings.Text("upstream");
  if (!address) {
    return Fail(ErrorCode::kInvalidArgument,
                "expected the server to compare with: sluice shadow MODEL --upstream URL",
                "upstream");
  }
  ASSIGN_OR_RETURN(Remote remote, RemoteAt(settings, *address));
  // The key in OPENAI_API_KEY may belong to another server than the upstream.
  ASSIGN_OR_RETURN(remote.api_key, GivenKey(settings));
  // The paths in clients' requests already begin with /v1.
  if (remote.url.path.ends_with("/v1")) remote.url.path.resize(remote.url.path.size() - 3);
  RETURN_IF_ERROR(MakeReportFolder(settings.TextOr("shadow-report")));
  // Called before the model is fetched, so that a second signal ends a download.
  Ending ending;
  const SignalWatcher watcher(
      [&](int) { ending.Begin(); },
      EndLimit{std::chrono::duration<double>(*settings.Number("shadow-patience")) + kShadowEndTime,
               "a comparison did not finish in time: the program ends without it"});
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(EngineConfig config, MakeEngineConfig(settings, model));
  TakeLittleMemory(settings, config);
  const bool has_reference = settings.Flag("float32-reference");
  const double epsilon = *settings.Number("epsilon");

  shadow::Findings findings({.upstream = ServerText(remote.url),
                             .model = model.name,
                             .ours = settings.TextOr("dtype"),
                             .reference = has_reference ? "float32" : "the model that is compared",
                             .epsilon = epsilon},
                            settings.TextOr("report-privacy") == "texts");
  shadow::ExchangeQueue queue(static_cast<size_t>(*settings.Integer("shadow-queue")),
                              static_cast<uint64_t>(*settings.Integer("shadow-queue-bytes")));
  // Clients are answered while the model is loaded.
  ServerConfig front = MakeServerConfig(settings, model);
  front.host = settings.TextOr("host");
  front.port = static_cast<uint16_t>(*settings.Integer("port"));
  front.request_memory_bytes = kForwardedBytes;
  front.api_keys.clear();
  ASSIGN_OR_RETURN(
      const std::unique_ptr<shadow::Relay> relay,
      shadow::Relay::Start(
          {.server = front,
           .upstream = remote.url,
           .tls = remote.tls,
           .asks_for_token_ids = settings.Flag("ask-token-ids"),
           .max_copied_together = static_cast<uint64_t>(*settings.Integer("shadow-queue-bytes"))},
          &queue, &findings));
  LOG_INFO("shadow", "forwarding to {} from {}", ServerText(remote.url),
           AddressOf(front, relay->port()));

  // The folder for the socket of a server that only this process uses.
  ASSIGN_OR_RETURN(const ScratchFolder folder, ScratchFolder::Make("sluice"));
  const ServerConfig own = OwnServer(settings, model, folder);
  ASSIGN_OR_RETURN(const std::unique_ptr<Serving> serving, Serving::Bind(own));
  RETURN_IF_ERROR(serving->Load(config, model, LoadReport::kProgress));
  ASSIGN_OR_RETURN(const ModelText text, LoadText(own, config, model));
  const EngineInfo& info = serving->engine().info();
  if (info.pooling) {
    return Fail(ErrorCode::kUnsupported,
                "the model computes vectors, not text: `sluice shadow` compares generated text",
                "model");
  }
  std::unique_ptr<Engine> reference;
  const bool is_plain =
      info.dtype == ElementType::kF32 && config.load_quantization == LoadQuantization{};
  if (has_reference && !is_plain) {
    ASSIGN_OR_RETURN(reference, Engine::Create(ReferenceOf(config), {}));
  }
  const HttpClient server(Url{.host = "localhost", .socket = own.uds});
  const shadow::UpstreamView view(remote.url, remote.api_key, remote.tls);
  shadow::Comparer comparer({.ours = &serving->engine(),
                             .reference = reference ? reference.get() : &serving->engine(),
                             .server = &server,
                             .tokenizer = text.tokenizer.get(),
                             .defaults = text.defaults,
                             .upstream = &view,
                             .asks_upstream = settings.Flag("ask-upstream"),
                             .epsilon = epsilon,
                             .findings = &findings});
  LOG_INFO("shadow", "comparing with {} in {}, epsilon {:g} nats, ready in {:.1f} s", model.name,
           DtypeName(info.dtype), epsilon,
           std::chrono::duration<double>(Clock::now() - start).count());
  {
    const Workers workers(queue, comparer, *settings.Integer("shadow-workers"));
    RETURN_IF_ERROR(Watch(settings, ending, *relay, queue, workers, findings));
    // Exchanges that are still queued are not compared.
    for (size_t left = queue.Clear(); left > 0; --left) findings.Dropped();
  }
  RETURN_IF_ERROR(WriteReports(settings.TextOr("shadow-report"), findings));
  fmt::print("{}\nreport     {}\n", findings.Line(),
             (std::filesystem::path(settings.TextOr("shadow-report")) / "report.html").string());
  return 0;
}

}  // namespace sluice::cli
