#include "server/metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "device/gpu_counters.h"
#include "engine/adapters.h"
#include "server/metrics_text.h"

namespace sluice {
namespace {

const std::vector<double> kHttpBounds = {.01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                                         2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60};

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void AppendRequestMemory(MetricsText& out, const RequestMemory& memory) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  out.Gauge("sluice:request_memory_bytes", "", number(memory.capacity()),
            "Limit of the memory for requests and answers, in bytes.");
  out.Gauge("sluice:request_memory_used_bytes", "", number(memory.used()),
            "Memory that requests and answers use, in bytes.");
  out.Counter(
      "sluice:request_memory_refusals", "", number(memory.num_refused()),
      "Number of times that memory was refused: the request failed with status 413 or 503, or its "
      "stream was aborted.");
}

// Writes zeros if there is no exporter.
void AppendTraces(MetricsText& out, const SpanExporter* exporter) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  out.Counter("sluice:trace_spans_sent", "", number(exporter == nullptr ? 0 : exporter->num_sent()),
              "Spans that the collector of --otlp-traces-endpoint accepted.");
  out.Counter("sluice:trace_spans_dropped", "",
              number(exporter == nullptr ? 0 : exporter->num_dropped()),
              "Spans that were dropped because the collector was too slow, not reachable, or "
              "refused them.");
}

// Writes no samples if the machine has no readable counters. Returns the joules of its processors,
// including all their parts, and of the GPUs.
double AppendEnergy(MetricsText& out, EnergyMeter& meter,
                    const std::vector<GpuCounters::Gpu>& gpus) {
  double joules = 0;
  out.Family("sluice:energy_joules_total", "counter",
             "Energy consumed since the start by the machine's processors, their parts, and the "
             "GPUs in use.");
  for (const EnergyMeter::Domain& domain : meter.Read()) {
    out.Sample("sluice:energy_joules_total", fmt::format("domain=\"{}\"", EscapeLabel(domain.name)),
               domain.joules);
    // The figure of a package includes its parts.
    if (domain.name.starts_with("package-") && domain.name.find('/') == std::string::npos)
      joules += domain.joules;
  }
  for (const GpuCounters::Gpu& gpu : gpus) {
    if (!gpu.joules) continue;
    out.Sample("sluice:energy_joules_total", fmt::format("domain=\"gpu-{}\"", gpu.number),
               *gpu.joules);
    joules += *gpu.joules;
  }
  return joules;
}

// Writes no samples if no GPU computes, or without NVML.
void AppendGpuMemory(MetricsText& out, const std::vector<GpuCounters::Gpu>& gpus) {
  const auto family = [&](const char* name, const char* help, int64_t GpuCounters::Gpu::*bytes) {
    out.Family(name, "gauge", help);
    for (const GpuCounters::Gpu& gpu : gpus) {
      if (gpu.total_bytes == 0) continue;
      out.Sample(name, fmt::format("gpu=\"{}\",uuid=\"{}\"", gpu.number, EscapeLabel(gpu.uuid)),
                 static_cast<double>(gpu.*bytes));
    }
  };
  family("sluice:gpu_memory_used_bytes",
         "Used memory of each GPU that the server computes on, including memory of other programs.",
         &GpuCounters::Gpu::used_bytes);
  family("sluice:gpu_memory_total_bytes", "Total memory of each GPU that the server computes on.",
         &GpuCounters::Gpu::total_bytes);
}

void AppendEnergyPerToken(MetricsText& out, double joules, uint64_t tokens) {
  constexpr std::string_view kName = "sluice:energy_joules_per_token";
  out.Family(kName, "gauge",
             "Energy per generated token since the start, for the machine's processors and the "
             "GPUs in use, including idle times.");
  if (joules > 0 && tokens > 0) out.Sample(kName, "", joules / static_cast<double>(tokens));
}

// Writes zeros if nothing is published.
void AppendCacheEvents(MetricsText& out, const CacheEventCounts& counts) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  out.Counter("sluice:kv_events_published", "", number(counts.published),
              "Batches of cache events that were published.");
  out.Counter("sluice:kv_events_dropped", "", number(counts.dropped),
              "Batches that were dropped because the publisher's queue was full; the next batch "
              "contains the whole cache.");
  out.Counter("sluice:kv_events_missed", "", number(counts.missed),
              "Batches that a subscriber missed because it reads too slowly.");
}

// Writes nothing if there are no tiers.
void AppendTiers(MetricsText& out, const TierCounts& counts) {
  if (!counts.has_ram && !counts.has_disk) return;
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto family = [&](const char* name, const char* type, const char* help, auto ram,
                          auto disk) {
    out.Family(name, type, help);
    if (counts.has_ram) out.Sample(name, "tier=\"ram\"", number(ram));
    if (counts.has_disk) out.Sample(name, "tier=\"disk\"", number(disk));
  };
  const DiskTierCounts& blocks = counts.disk_blocks;
  const DiskTierCounts& snapshots = counts.disk_snapshots;
  family("sluice:kv_tier_stored_blocks_total", "counter",
         "Blocks evicted from the KV cache and stored in a tier.", counts.blocks.ram_stored,
         blocks.written);
  family("sluice:kv_tier_loaded_blocks_total", "counter", "Blocks loaded back into the KV cache.",
         counts.blocks.ram_loaded, counts.blocks.disk_loaded);
  if (counts.has_snapshots) {
    family("sluice:kv_tier_stored_snapshots_total", "counter",
           "Snapshots of recurrent states that were evicted from memory and stored in a tier.",
           counts.snapshots.ram_stored, snapshots.written);
    family("sluice:kv_tier_loaded_snapshots_total", "counter",
           "Snapshots of recurrent states that were loaded back.", counts.snapshots.ram_loaded,
           counts.snapshots.disk_loaded);
  }
  family("sluice:kv_tier_used_bytes", "gauge", "Size of the data in a tier, in bytes.",
         counts.ram_bytes, blocks.used_bytes + snapshots.used_bytes);
  family("sluice:kv_tier_capacity_bytes", "gauge", "Maximum size of the data in a tier, in bytes.",
         counts.ram_capacity, counts.disk_capacity);
  out.Counter(
      "sluice:kv_tier_lost_blocks", "",
      number(counts.blocks.dropped + counts.snapshots.dropped + blocks.dropped + snapshots.dropped),
      "Blocks and snapshots that were dropped from all tiers, because there is no disk tier or it "
      "writes too slowly.");
  if (!counts.has_disk) return;
  out.Counter("sluice:kv_tier_damaged_files", "", number(blocks.damaged + snapshots.damaged),
              "Files of blocks that were removed because they were incomplete, damaged or from "
              "another model.");
  out.Gauge("sluice:kv_tier_disk_writes", "", number(blocks.writes && snapshots.writes),
            "1 while blocks are written to disk; 0 once that has failed.");
}

// As in vLLM, the adapters' names are labels and the value is the time.
void AppendAdapters(MetricsText& out, const Adapters* adapters, std::string_view label = "") {
  constexpr std::string_view kName = "vllm:lora_requests_info";
  out.Family(
      kName, "gauge",
      "LoRA adapters of running and waiting requests, as labels; no sample without --enable-lora.");
  if (adapters == nullptr) return;
  std::string running, waiting;
  const auto add = [](std::string& names, const std::string& name) {
    if (!names.empty()) names.push_back(',');
    names += name;
  };
  for (const auto& [name, counts] : adapters->counts()) {
    if (counts.running > 0) add(running, name);
    if (counts.waiting > 0) add(waiting, name);
  }
  out.Sample(
      kName,
      fmt::format("{}max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"",
                  label, adapters->max_loras(), EscapeLabel(running), EscapeLabel(waiting)),
      Now());
}

void AppendProcess(MetricsText& out, double start_time) {
  int64_t virtual_pages = 0, resident_pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    long a = 0, b = 0;
    if (std::fscanf(file, "%ld %ld", &a, &b) == 2) virtual_pages = a, resident_pages = b;
    std::fclose(file);
  }
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  int open_files = 0;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder) != nullptr) ++open_files;
    closedir(folder);
    open_files -= 3;  // not counted: ".", ".." and the opened folder itself
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + time.tv_usec / 1e6;
  };
  out.Gauge("process_virtual_memory_bytes", "", static_cast<double>(virtual_pages) * page,
            "Virtual memory size in bytes.");
  out.Gauge("process_resident_memory_bytes", "", static_cast<double>(resident_pages) * page,
            "Resident memory size in bytes.");
  out.Gauge("process_start_time_seconds", "", start_time,
            "Start time of the process since unix epoch in seconds.");
  out.Counter("process_cpu_seconds", "", seconds(usage.ru_utime) + seconds(usage.ru_stime),
              "Total user and system CPU time spent in seconds.");
  out.Gauge("process_open_fds", "", open_files, "Number of open file descriptors.");
  out.Gauge("process_max_fds", "", static_cast<double>(limit.rlim_cur),
            "Maximum number of open file descriptors.");
}

}  // namespace

namespace {

double CacheUsage(const ThroughputCounts& counts) {
  return counts.total_blocks > 0
             ? static_cast<double>(counts.used_blocks) / static_cast<double>(counts.total_blocks)
             : 0;
}

}  // namespace

Metrics::Metrics(std::shared_ptr<const RequestMemory> memory,
                 const std::filesystem::path& power_folder)
    : start_time_(Now()),
      memory_(std::move(memory)),
      energy_(power_folder),
      http_seconds_(kHttpBounds) {}

EngineObserver* Metrics::Of(int engine) {
  const MutexLock lock(mutex_);
  while (std::ssize(observers_) <= engine)
    observers_.push_back(std::make_unique<Observer>(*this, observers_.size()));
  if (engines_.size() < observers_.size()) engines_.resize(observers_.size());
  return observers_[static_cast<size_t>(engine)].get();
}

void Metrics::SetModel(std::string model_name, const EngineInfo& info, const ServerConfig& config) {
  Of(info.num_engines - 1);
  GpuCounters::OfProcess().Read();  // energy is counted from this time on
  const MutexLock lock(mutex_);
  const bool goes_on =
      has_model_ && model_name == model_name_ && info.max_model_len == info_.max_model_len;
  config_ = config;
  model_name_ = std::move(model_name);
  info_ = info;
  last_op_times_.clear();
  for (size_t i = 0; i < engines_.size(); ++i) {
    if (goes_on && !engines_[i].labels.empty()) {
      engines_[i].last = StepStats();
      engines_[i].last.total_blocks = info.num_blocks;
      continue;
    }
    engines_[i].SetModel(info.first_engine + static_cast<int>(i), model_name_, info);
  }
  has_model_ = true;
}

void Metrics::Observer::OnStep(const StepStats& stats) {
  const MutexLock lock(owner_.mutex_);
  EngineMetrics& engine = owner_.engines_[engine_];
  engine.OnStep(stats);
  if (!owner_.config_.enable_iteration_stats) return;
  std::deque<Iteration>& iterations = owner_.iterations_;
  if (iterations.size() == kMaxIterations) iterations.pop_front();
  iterations.push_back({engine.num_steps, stats, Now()});
}

void Metrics::Observer::OnFirstToken(double seconds_since_arrival) {
  const MutexLock lock(owner_.mutex_);
  owner_.engines_[engine_].first_token.Observe(seconds_since_arrival);
}

void Metrics::Observer::OnInterToken(double seconds) {
  const MutexLock lock(owner_.mutex_);
  owner_.engines_[engine_].inter_token.Observe(seconds);
}

void Metrics::Observer::OnFinished(const RequestStats& stats) {
  const MutexLock lock(owner_.mutex_);
  owner_.engines_[engine_].OnFinished(stats);
}

void Metrics::OnHttp(const HttpExchangeRecord& record, std::string_view handler) {
  static constexpr std::string_view kExcluded[] = {"/metrics", "/health",  "/ready",      "/load",
                                                   "/ping",    "/version", "/server_info"};
  if (std::find(std::begin(kExcluded), std::end(kExcluded), handler) != std::end(kExcluded)) return;
  const MutexLock lock(mutex_);
  auto found = handlers_.find(handler);
  if (found == handlers_.end()) found = handlers_.emplace(std::string(handler), Handler{}).first;
  Handler& entry = found->second;
  const std::string method(record.method);
  ++entry.requests[{method, fmt::format("{}xx", record.status / 100)}];
  auto& seconds = entry.seconds.try_emplace(method, std::vector<double>{.1, .5, 1}).first->second;
  seconds.Observe(record.seconds);
  http_seconds_.Observe(record.seconds);
  ++entry.count;
  entry.request_bytes += record.request_bytes;
  entry.response_bytes += record.response_bytes;
}

void Metrics::OnImage(bool is_cached) {
  const MutexLock lock(mutex_);
  if (engines_.empty()) return;
  ++engines_.front().image_queries;
  if (is_cached) ++engines_.front().image_hits;
}

void Metrics::OnRejected() {
  const MutexLock lock(mutex_);
  ++rejected_;
}

void Metrics::SetSleeping(bool sleeping) {
  const MutexLock lock(mutex_);
  sleeping_ = sleeping;
}

std::string Metrics::TakeIterations() {
  std::deque<Iteration> taken;
  EngineInfo info;
  {
    const MutexLock lock(mutex_);
    taken.swap(iterations_);
    info = info_;
  }
  std::string out = "[";
  for (const Iteration& iteration : taken) {
    const StepStats& stats = iteration.stats;
    if (out.size() > 1) out.push_back(',');
    out += fmt::format(
        R"({{"iter":{},"timestamp":{:.3f},"iterLatencyMS":{:.3f},"numActiveRequests":{},)"
        R"("numQueuedRequests":{},"maxNumActiveRequests":{},"kvCacheStats":{{"maxNumBlocks":{},)"
        R"("freeNumBlocks":{},"usedNumBlocks":{},"tokensPerBlock":{},"cacheHitRate":{:.4f}}},)"
        R"("inflightBatchingStats":{{"numScheduledRequests":{},"numContextRequests":{},)"
        R"("numGenRequests":{},"numPausedRequests":{},"numCtxTokens":{}}}}})",
        iteration.number, iteration.unix_seconds, stats.step_seconds * 1e3, stats.running,
        stats.waiting, info.max_num_seqs, stats.total_blocks,
        stats.total_blocks - stats.used_blocks, stats.used_blocks, info.block_size,
        stats.prefix_queries > 0
            ? static_cast<double>(stats.prefix_hits) / static_cast<double>(stats.prefix_queries)
            : 0.0,
        stats.running, stats.running - std::min(stats.running, stats.generated_tokens),
        std::min(stats.running, stats.generated_tokens), stats.preemptions, stats.prompt_tokens);
  }
  return out + "]";
}

ThroughputCounts Metrics::AllCounts() const {
  ThroughputCounts all;
  for (const EngineMetrics& engine : engines_) all.Add(engine);
  return all;
}

int64_t Metrics::num_running() const {
  const MutexLock lock(mutex_);
  return AllCounts().running;
}
int64_t Metrics::num_waiting() const {
  const MutexLock lock(mutex_);
  return AllCounts().waiting;
}
double Metrics::cache_usage() const {
  const MutexLock lock(mutex_);
  return CacheUsage(AllCounts());
}

void Metrics::AppendCacheConfig(MetricsText& out) const {
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto boolean = [](bool value) { return value ? "True" : "False"; };
  const int64_t tokens = info_.kv_tokens;
  std::vector<std::pair<std::string, std::string>> labels = {
      {"block_size", std::to_string(info_.block_size)},
      {"cache_dtype", std::string(DtypeName(info_.kv_cache_dtype))},
      {"enable_prefix_caching", boolean(config_.enable_prefix_caching)},
      {"engine", ""},  // each engine's sample sets it below
      {"gpu_memory_utilization", config_.memory_utilization
                                     ? MetricNumber(*config_.memory_utilization)
                                     : std::string("None")},
      {"is_attention_free", "False"},
      {"kv_cache_max_concurrency",
       info_.max_model_len > 0 ? MetricNumber(number(tokens) / number(info_.max_model_len)) : "0"},
      {"kv_cache_memory_bytes", std::to_string(info_.kv_bytes)},
      {"kv_cache_size_tokens", std::to_string(tokens)},
      {"model_name", model_name_},
      {"num_cpu_blocks", "None"},
      {"num_gpu_blocks", std::to_string(info_.num_blocks)},
      {"num_gpu_blocks_override", config_.num_blocks_override
                                      ? std::to_string(*config_.num_blocks_override)
                                      : std::string("None")},
      {"sliding_window", "None"},
  };
  out.Family("vllm:cache_config_info", "gauge", "Settings of the KV cache, as labels.");
  for (const EngineMetrics& engine : engines_) {
    std::string text;
    for (const auto& [name, value] : labels) {
      const std::string shown = name == "engine" ? std::to_string(engine.number) : value;
      text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, EscapeLabel(shown));
    }
    out.Sample("vllm:cache_config_info", text, 1);
  }
  if (info_.simulated.empty()) return;
  out.Family("sluice:simulation_info", "gauge",
             "Devices that --simulate simulates, and the factor by which steps are shorter than on "
             "these devices.");
  out.Sample("sluice:simulation_info",
             fmt::format(R"(devices="{}",speed="{:g}")", EscapeLabel(info_.simulated),
                         config_.simulate_speed),
             1);
}

void Metrics::AppendEngines(MetricsText& out, bool idle,
                            std::span<const EngineState> states) const {
  std::vector<const EngineMetrics*> engines;
  for (const EngineMetrics& engine : engines_) engines.push_back(&engine);
  EngineFamilies families(out, engines);
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto running = [&](const EngineMetrics& engine) {
    return idle ? 0 : number(engine.last.running);
  };
  const auto waiting = [&](const EngineMetrics& engine) {
    return idle ? 0 : number(engine.last.waiting);
  };
  const auto usage = [&](const EngineMetrics& engine) {
    ThroughputCounts counts;
    counts.Add(engine);
    return idle ? 0 : CacheUsage(counts);
  };
  const auto zero = [](const EngineMetrics&) { return 0.0; };
  const double awake = sleeping_ ? 0 : 1;
  const int first_engine = info_.first_engine;
  families.Gauge("vllm:num_requests_running", "Number of requests that are being computed.",
                 running);
  families.Gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
                 waiting);
  families.Several("vllm:num_requests_waiting_by_reason", "gauge",
                   "Number of waiting requests by the reason why they wait.", "reason",
                   {{"capacity", waiting}, {"deferred", zero}});
  families.Gauge("vllm:num_requests_swapped", "Number of requests swapped out; always 0.", zero);
  families.Several("vllm:engine_sleep_state", "gauge",
                   "Engine sleep state; awake = 1 means that the engine is awake.", "sleep_state",
                   {{"awake", [&](const EngineMetrics&) { return awake; }},
                    {"weights_offloaded", zero},
                    {"discard_all", zero}});
  families.Gauge(
      "sluice:engine_healthy",
      "1 if the engine works; 0 if it has failed, so that requests are sent to other engines.",
      [&](const EngineMetrics& engine) {
        const auto place = static_cast<size_t>(engine.number - first_engine);
        return place >= states.size() || states[place].is_healthy ? 1.0 : 0.0;
      });
  families.Gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", usage);
  families.Several(
      "sluice:state_slots", "gauge",
      "Slots for the states of recurrent models, by use: running sequences, snapshots of prefixes, "
      "and free slots.",
      "use",
      {{"running", [](const EngineMetrics& engine) { return double(engine.last.held_states); }},
       {"snapshot", [](const EngineMetrics& engine) { return double(engine.last.kept_states); }},
       {"free", [](const EngineMetrics& engine) {
          const StepStats& last = engine.last;
          return double(last.total_states - last.held_states - last.kept_states);
        }}});
  families.Gauge("vllm:gpu_cache_usage_perc",
                 "KV-cache usage under its old name. 1 means 100 percent usage.", usage);
  AppendTokenFamilies(families, info_.num_speculative_tokens);

  out.Family("vllm:admission_rejections_total", "counter",
             "Requests that were answered with 503 because the server was full.");
  out.Sample("vllm:admission_rejections_total",
             fmt::format("model_name=\"{}\",reason=\"queue_full\"", EscapeLabel(model_name_)),
             number(rejected_));

  AppendRequestFamilies(families);
  AppendCacheConfig(out);
  AppendOpTimes(out);
}

void Metrics::AppendOpTimes(MetricsText& out) const {
  if (info_.op_times == nullptr) return;
  const std::vector<OpTime> times = info_.op_times->All();
  const std::string model = EscapeLabel(model_name_);
  const auto family = [&](const std::string& name, const char* help, const auto& value) {
    out.Family(name, "counter", help);
    for (const OpTime& op : times) {
      out.Sample(name, fmt::format("model_name=\"{}\",operator=\"{}\"", model, EscapeLabel(op.op)),
                 static_cast<double>(value(op)));
    }
  };
  family("sluice:operator_seconds_total",
         "Time of each operator of the model (--profile-ops); the label contains the buffers that "
         "it reads and writes.",
         [](const OpTime& op) { return op.seconds; });
  family("sluice:operator_calls_total",
         "Number of times that each operator was run (--profile-ops).",
         [](const OpTime& op) { return op.calls; });
}

void Metrics::AddOpLines(std::vector<std::string>& lines) {
  if (info_.op_times == nullptr) return;
  std::vector<OpTime> now = info_.op_times->All();
  for (const std::string& line : OpTimeLines(now, last_op_times_))
    lines.push_back("operator " + line);
  last_op_times_ = std::move(now);
}

std::string Metrics::Text(bool idle, std::span<const EngineState> states, const Adapters* adapters,
                          const CacheEventCounts& cache_events, const TierCounts& tiers) const {
  MetricsText out;
  AppendProcess(out, start_time_);
  if (memory_ != nullptr) AppendRequestMemory(out, *memory_);
  AppendTraces(out, exporter_.get());
  AppendCacheEvents(out, cache_events);
  AppendTiers(out, tiers);
  const std::vector<GpuCounters::Gpu> gpus = GpuCounters::OfProcess().Read();
  const double joules = AppendEnergy(out, energy_, gpus);
  AppendGpuMemory(out, gpus);
  const MutexLock lock(mutex_);
  AppendEnergyPerToken(out, joules, AllCounts().generation);
  if (has_model_) {
    AppendAdapters(out, adapters);
    AppendEngines(out, idle, states);
  }

  out.Family("http_requests_total", "counter",
             "Total number of requests by method, status and handler.");
  for (const auto& [name, handler] : handlers_) {
    for (const auto& [key, count] : handler.requests) {
      out.Sample("http_requests_total",
                 fmt::format("handler=\"{}\",method=\"{}\",status=\"{}\"", EscapeLabel(name),
                             EscapeLabel(key.first), key.second),
                 static_cast<double>(count));
    }
  }
  const auto summary = [&out](const char* name, const char* help, const auto& handlers,
                              auto&& bytes) {
    out.Family(name, "summary", help);
    for (const auto& [handler_name, handler] : handlers) {
      const std::string labels = fmt::format("handler=\"{}\"", EscapeLabel(handler_name));
      out.Sample(std::string(name) + "_count", labels, static_cast<double>(handler.count));
      out.Sample(std::string(name) + "_sum", labels, static_cast<double>(bytes(handler)));
    }
  };
  summary("http_request_size_bytes", "Content length of incoming requests by handler.", handlers_,
          [](const Handler& handler) { return handler.request_bytes; });
  summary("http_response_size_bytes", "Content length of outgoing responses by handler.", handlers_,
          [](const Handler& handler) { return handler.response_bytes; });
  out.Distribution("http_request_duration_highr_seconds", "", http_seconds_,
                   "Latency of all requests in seconds, with many buckets and no labels.");
  out.Family("http_request_duration_seconds", "histogram",
             "Latency of requests in seconds by handler, with few buckets.");
  for (const auto& [name, handler] : handlers_) {
    for (const auto& [method, histogram] : handler.seconds) {
      out.Buckets(
          "http_request_duration_seconds",
          fmt::format("handler=\"{}\",method=\"{}\"", EscapeLabel(name), EscapeLabel(method)),
          histogram);
    }
  }
  return out.Take();
}

std::string Metrics::ModelText(bool idle, std::span<const EngineState> states,
                               const Adapters* adapters) const {
  MetricsText out;
  const MutexLock lock(mutex_);
  if (!has_model_) return "";
  AppendAdapters(out, adapters, fmt::format("model_name=\"{}\",", EscapeLabel(model_name_)));
  AppendEngines(out, idle, states);
  return out.Take();
}

std::vector<std::string> Metrics::ThroughputLines() {
  const MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - line_time_).count();
  line_time_ = now;
  const char* const device = info_.device && IsGpu(*info_.device) ? "GPU" : "CPU";
  std::vector<std::string> lines;
  const auto add = [&](LastLine& last, const ThroughputCounts& counts, const std::string& name) {
    const uint64_t prompt = counts.prompt - last.prompt,
                   generation = counts.generation - last.generation;
    const bool busy = prompt + generation > 0 || counts.running > 0 || counts.waiting > 0;
    // One more line after the last busy interval shows that the engine is idle.
    const bool report = busy || last.busy;
    last = {counts.prompt, counts.generation, busy};
    if (!report || seconds <= 0) return;
    const double hits = counts.prefix_queries > 0
                            ? 100.0 * static_cast<double>(counts.prefix_hits) /
                                  static_cast<double>(counts.prefix_queries)
                            : 0;
    lines.push_back(fmt::format(
        "{}: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, "
        "Running: {} reqs, Waiting: {} reqs, {} KV cache usage: {:.1f}%, Prefix cache hit rate: "
        "{:.1f}%",
        name, static_cast<double>(prompt) / seconds, static_cast<double>(generation) / seconds,
        counts.running, counts.waiting, device, 100 * CacheUsage(counts), hits));
  };
  last_lines_.resize(engines_.size());
  if (config_.aggregate_engine_logging && engines_.size() > 1) {
    add(last_lines_.front(), AllCounts(), fmt::format("{} Engines Aggregated", engines_.size()));
  } else {
    for (size_t i = 0; i < engines_.size(); ++i) {
      ThroughputCounts counts;
      counts.Add(engines_[i]);
      add(last_lines_[i], counts, fmt::format("Engine {:03}", engines_[i].number));
    }
  }
  AddOpLines(lines);
  return lines;
}

}  // namespace sluice
