#include "server/metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"

namespace sluice {
namespace {

std::vector<double> TokenBounds(int64_t max_model_len) {
  std::vector<double> bounds;
  for (double power = 1; power <= static_cast<double>(max_model_len); power *= 10) {
    for (const double step : {1, 2, 5}) {
      if (step * power <= static_cast<double>(max_model_len)) bounds.push_back(step * power);
    }
  }
  return bounds;
}

const std::vector<double> kFirstTokenBounds = {.001, .005, .01, .02, .04, .06, .08, .1,
                                               .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                               20,   40,   80,  160, 640, 2560};
const std::vector<double> kTokenTimeBounds = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                              .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kRequestBounds = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kIterationBounds = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kHttpBounds = {.01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                                         2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60};

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  std::string out;
  json::AppendDouble(out, value);
  return out;
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '"')
      out += "\\\"";
    else if (c == '\n')
      out += "\\n";
    else
      out.push_back(c);
  }
  return out;
}

}  // namespace

// Writes families of samples. Labels are given as `a="b",c="d"`.
class MetricsText {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    AppendFormat(out_, "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void Sample(std::string_view name, std::string_view labels, double value) {
    out_ += name;
    if (!labels.empty()) out_.append("{").append(labels).append("}");
    out_.append(" ").append(NumberText(value)).append("\n");
  }
  void Gauge(std::string_view name, std::string_view labels, double value, std::string_view help) {
    Family(name, "gauge", help);
    Sample(name, labels, value);
  }
  void Counter(const std::string& name, std::string_view labels, double value,
               std::string_view help) {
    Family(name + "_total", "counter", help);
    Sample(name + "_total", labels, value);
  }
  void Distribution(const std::string& name, std::string_view labels, const Histogram& histogram,
                    std::string_view help) {
    Family(name, "histogram", help);
    Buckets(name, labels, histogram);
  }
  void Buckets(const std::string& name, std::string_view labels, const Histogram& histogram) {
    const std::string prefix = labels.empty() ? "" : std::string(labels) + ",";
    uint64_t total = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      total += histogram.counts()[i];
      const std::string bound =
          i < histogram.bounds().size() ? NumberText(histogram.bounds()[i]) : "+Inf";
      Sample(name + "_bucket", fmt::format("{}le=\"{}\"", prefix, bound),
             static_cast<double>(total));
    }
    Sample(name + "_count", labels, static_cast<double>(histogram.count()));
    Sample(name + "_sum", labels, histogram.sum());
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

namespace {

void AppendRequestMemory(MetricsText& out, const RequestMemory& memory) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  out.Gauge("sluice:request_memory_bytes", "", number(memory.capacity()),
            "Memory that requests and answers may hold, in bytes.");
  out.Gauge("sluice:request_memory_used_bytes", "", number(memory.used()),
            "Memory that requests and answers hold, in bytes.");
  out.Counter("sluice:request_memory_refusals", "", number(memory.num_refused()),
              "Times that memory was refused: the request was answered 413 or 503, or its stream "
              "cut.");
}

// Zeros without an exporter.
void AppendTraces(MetricsText& out, const SpanExporter* exporter) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  out.Counter("sluice:trace_spans_sent", "", number(exporter == nullptr ? 0 : exporter->num_sent()),
              "Spans that the collector of --otlp-traces-endpoint has taken.");
  out.Counter("sluice:trace_spans_dropped", "",
              number(exporter == nullptr ? 0 : exporter->num_dropped()),
              "Spans that were dropped because the collector takes them too slowly, not at all, or "
              "refused them.");
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
    open_files -= 3;  // ".", ".." and the folder itself
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

void Histogram::Observe(double value, uint64_t times) {
  if (counts_.empty() || times == 0) return;
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(bound - bounds_.begin())] += times;
  sum_ += value * static_cast<double>(times);
  count_ += times;
}

Metrics::Metrics(std::shared_ptr<const RequestMemory> memory)
    : start_time_(Now()), memory_(std::move(memory)), http_seconds_(kHttpBounds) {}

void Metrics::SetModel(std::string model_name, const EngineInfo& info, const ServerConfig& config) {
  const MutexLock lock(mutex_);
  config_ = config;
  model_name_ = std::move(model_name);
  info_ = info;
  first_token_ = Histogram(kFirstTokenBounds);
  for (Histogram* histogram : {&inter_token_, &per_token_})
    *histogram = Histogram(kTokenTimeBounds);
  for (Histogram* histogram : {&e2e_, &queue_, &inference_, &prefill_, &decode_})
    *histogram = Histogram(kRequestBounds);
  for (Histogram* histogram :
       {&prompt_lengths_, &generation_lengths_, &max_generation_, &max_tokens_, &computed_}) {
    *histogram = Histogram(TokenBounds(info.max_model_len));
  }
  sequences_ = Histogram({1, 2, 5, 10, 20});
  iteration_ = Histogram(kIterationBounds);
  request_preemptions_ = Histogram({1, 2, 3, 4, 5, 10, 20});
  last_.total_blocks = info.num_blocks;
  has_model_ = true;
}

void Metrics::OnStep(const StepStats& stats) {
  const MutexLock lock(mutex_);
  last_ = stats;
  ++num_steps_;
  if (config_.enable_iteration_stats) {
    if (iterations_.size() == kMaxIterations) iterations_.pop_front();
    iterations_.push_back({num_steps_, stats, Now()});
  }
  prompt_tokens_ += static_cast<uint64_t>(stats.prompt_tokens);
  generation_tokens_ += static_cast<uint64_t>(stats.generated_tokens);
  preemptions_ += static_cast<uint64_t>(stats.preemptions);
  prefix_queries_ += static_cast<uint64_t>(stats.prefix_queries);
  prefix_hits_ += static_cast<uint64_t>(stats.prefix_hits);
  drafts_ += static_cast<uint64_t>(stats.drafts);
  draft_tokens_ += static_cast<uint64_t>(stats.draft_tokens);
  if (stats.drafts > 0) {
    for (size_t i = 0; i < accepted_tokens_.size(); ++i)
      accepted_tokens_[i] += static_cast<uint64_t>(stats.accepted_tokens[i]);
  }
  if (const int64_t tokens = stats.prompt_tokens + stats.generated_tokens; tokens > 0) {
    iteration_.Observe(static_cast<double>(tokens));
  }
}

void Metrics::OnFirstToken(double seconds_since_arrival) {
  const MutexLock lock(mutex_);
  first_token_.Observe(seconds_since_arrival);
}

void Metrics::OnInterToken(double seconds) {
  const MutexLock lock(mutex_);
  inter_token_.Observe(seconds);
}

void Metrics::OnFinished(const RequestStats& stats) {
  const MutexLock lock(mutex_);
  cached_tokens_ += static_cast<uint64_t>(stats.cached_tokens);
  // vLLM does not count requests whose client has disconnected.
  if (stats.reason == FinishReason::kAbort) return;
  finished_[static_cast<int>(stats.reason)] += static_cast<uint64_t>(stats.num_sequences);
  const uint64_t times = static_cast<uint64_t>(std::max(1, stats.num_sequences));
  const double per_sequence =
      static_cast<double>(stats.generated_tokens) / static_cast<double>(times);
  e2e_.Observe(stats.total_seconds, times);
  queue_.Observe(stats.queue_seconds, times);
  inference_.Observe(stats.inference_seconds, times);
  prefill_.Observe(stats.prefill_seconds, times);
  decode_.Observe(stats.decode_seconds, times);
  if (per_sequence > 1) per_token_.Observe(stats.decode_seconds / (per_sequence - 1), times);
  prompt_lengths_.Observe(static_cast<double>(stats.prompt_tokens), times);
  generation_lengths_.Observe(per_sequence, times);
  max_generation_.Observe(per_sequence);
  max_tokens_.Observe(static_cast<double>(stats.max_tokens), times);
  computed_.Observe(static_cast<double>(stats.prompt_tokens - stats.cached_tokens), times);
  sequences_.Observe(static_cast<double>(stats.num_sequences));
  request_preemptions_.Observe(static_cast<double>(stats.preemptions));
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

int64_t Metrics::num_running() const {
  const MutexLock lock(mutex_);
  return last_.running;
}
int64_t Metrics::num_waiting() const {
  const MutexLock lock(mutex_);
  return last_.waiting;
}
double Metrics::cache_usage() const {
  const MutexLock lock(mutex_);
  return last_.total_blocks > 0
             ? static_cast<double>(last_.used_blocks) / static_cast<double>(last_.total_blocks)
             : 0;
}

void Metrics::AppendSpeculation(MetricsText& out, const std::string& labels) const {
  if (info_.num_speculative_tokens == 0) return;
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  const auto accepted =
      std::accumulate(accepted_tokens_.begin(), accepted_tokens_.end(), uint64_t{0});
  out.Counter("vllm:spec_decode_num_drafts", labels, number(drafts_),
              "Number of times that tokens of a sequence were proposed.");
  out.Counter("vllm:spec_decode_num_draft_tokens", labels, number(draft_tokens_),
              "Number of proposed tokens.");
  out.Counter("vllm:spec_decode_num_accepted_tokens", labels, number(accepted),
              "Number of proposed tokens that were accepted.");
  out.Family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
             "Number of accepted tokens by their place in what was proposed.");
  for (int i = 0; i < info_.num_speculative_tokens; ++i) {
    out.Sample("vllm:spec_decode_num_accepted_tokens_per_pos_total",
               fmt::format("{},position=\"{}\"", labels, i),
               number(accepted_tokens_[static_cast<size_t>(i)]));
  }
}

void Metrics::AppendCacheConfig(MetricsText& out) const {
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto boolean = [](bool value) { return value ? "True" : "False"; };
  const int64_t tokens = info_.kv_tokens;
  std::vector<std::pair<std::string, std::string>> labels = {
      {"block_size", std::to_string(info_.block_size)},
      {"cache_dtype", std::string(DtypeName(info_.kv_cache_dtype))},
      {"enable_prefix_caching", boolean(config_.enable_prefix_caching)},
      {"engine", "0"},
      {"gpu_memory_utilization",
       config_.memory_utilization ? NumberText(*config_.memory_utilization) : std::string("None")},
      {"is_attention_free", "False"},
      {"kv_cache_max_concurrency",
       info_.max_model_len > 0 ? NumberText(number(tokens) / number(info_.max_model_len)) : "0"},
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
  std::string text;
  for (const auto& [name, value] : labels)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, Escape(value));
  out.Family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");
  out.Sample("vllm:cache_config_info", text, 1);
}

std::string Metrics::Text(bool idle) const {
  const double usage = idle ? 0 : cache_usage();
  MetricsText out;
  AppendProcess(out, start_time_);
  if (memory_ != nullptr) AppendRequestMemory(out, *memory_);
  AppendTraces(out, exporter_.get());
  const MutexLock lock(mutex_);
  const int64_t running = idle ? 0 : last_.running, waiting = idle ? 0 : last_.waiting;
  if (has_model_) {
    const std::string labels = fmt::format("engine=\"0\",model_name=\"{}\"", Escape(model_name_));
    const auto with = [&](std::string_view name, std::string_view value) {
      return fmt::format("{},{}=\"{}\"", labels, name, value);
    };
    const auto number = [](auto value) { return static_cast<double>(value); };

    out.Gauge("vllm:num_requests_running", labels, number(running),
              "Number of requests in model execution batches.");
    out.Gauge("vllm:num_requests_waiting", labels, number(waiting),
              "Number of requests waiting to be processed.");
    out.Family("vllm:num_requests_waiting_by_reason", "gauge",
               "Number of waiting requests by reason.");
    out.Sample("vllm:num_requests_waiting_by_reason", with("reason", "capacity"), number(waiting));
    out.Sample("vllm:num_requests_waiting_by_reason", with("reason", "deferred"), 0);
    out.Gauge("vllm:num_requests_swapped", labels, 0, "Number of requests swapped out; always 0.");
    out.Family("vllm:engine_sleep_state", "gauge",
               "Engine sleep state; awake = 1 means that the engine is awake.");
    out.Sample("vllm:engine_sleep_state", with("sleep_state", "awake"), sleeping_ ? 0 : 1);
    out.Sample("vllm:engine_sleep_state", with("sleep_state", "weights_offloaded"), 0);
    out.Sample("vllm:engine_sleep_state", with("sleep_state", "discard_all"), 0);
    out.Gauge("vllm:kv_cache_usage_perc", labels, usage,
              "KV-cache usage. 1 means 100 percent usage.");
    out.Gauge("vllm:gpu_cache_usage_perc", labels, usage,
              "KV-cache usage under its old name. 1 means 100 percent usage.");

    for (const char* prefix : {"vllm:", "vllm:gpu_"}) {
      out.Counter(fmt::format("{}prefix_cache_queries", prefix), labels, number(prefix_queries_),
                  "Prefix cache queries, in terms of number of queried tokens.");
      out.Counter(fmt::format("{}prefix_cache_hits", prefix), labels, number(prefix_hits_),
                  "Prefix cache hits, in terms of number of cached tokens.");
    }
    for (const char* name : {"external_prefix_cache_queries", "external_prefix_cache_hits",
                             "mm_cache_queries", "mm_cache_hits"}) {
      out.Counter(fmt::format("vllm:{}", name), labels, 0,
                  "A cache that this server does not have; always 0.");
    }
    out.Counter("vllm:num_preemptions", labels, number(preemptions_),
                "Cumulative number of preemption from the engine.");
    out.Counter("vllm:prompt_tokens", labels, number(prompt_tokens_ + prefix_hits_),
                "Number of prefill tokens processed.");
    out.Family("vllm:prompt_tokens_by_source_total", "counter",
               "Number of prompt tokens by source.");
    out.Sample("vllm:prompt_tokens_by_source_total", with("source", "local_compute"),
               number(prompt_tokens_));
    out.Sample("vllm:prompt_tokens_by_source_total", with("source", "local_cache_hit"),
               number(prefix_hits_));
    out.Sample("vllm:prompt_tokens_by_source_total", with("source", "external_kv_transfer"), 0);
    out.Counter("vllm:prompt_tokens_cached", labels, number(prefix_hits_),
                "Number of cached prompt tokens (local + external).");
    out.Family("vllm:prompt_tokens_cached_by_source_total", "counter",
               "Number of cached prompt tokens by where they were.");
    out.Sample("vllm:prompt_tokens_cached_by_source_total", with("source", "local"),
               number(prefix_hits_));
    out.Sample("vllm:prompt_tokens_cached_by_source_total", with("source", "external"), 0);
    out.Counter("vllm:generation_tokens", labels, number(generation_tokens_),
                "Number of generation tokens processed.");
    AppendSpeculation(out, labels);
    out.Family("vllm:request_success_total", "counter",
               "Count of successfully processed requests.");
    static constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};
    for (int i = 0; i < 4; ++i)
      out.Sample("vllm:request_success_total", with("finished_reason", kReasons[i]),
                 number(finished_[i]));
    out.Sample("vllm:request_success_total", with("finished_reason", "repetition"), 0);

    out.Family("vllm:admission_rejections_total", "counter",
               "Requests that were answered 503 because the server was full.");
    out.Sample("vllm:admission_rejections_total",
               fmt::format("model_name=\"{}\",reason=\"queue_full\"", Escape(model_name_)),
               number(rejected_));

    out.Distribution("vllm:request_prompt_tokens", labels, prompt_lengths_,
                     "Number of prefill tokens processed.");
    out.Distribution("vllm:request_generation_tokens", labels, generation_lengths_,
                     "Number of generation tokens processed.");
    out.Distribution("vllm:iteration_tokens_total", labels, iteration_,
                     "Histogram of number of tokens per engine_step.");
    out.Distribution("vllm:request_max_num_generation_tokens", labels, max_generation_,
                     "Histogram of maximum number of requested generation tokens.");
    out.Distribution("vllm:request_num_preemptions", labels, request_preemptions_,
                     "Histogram of how often a request was preempted.");
    out.Distribution("vllm:request_params_n", labels, sequences_,
                     "Histogram of the n request parameter.");
    out.Distribution("vllm:request_params_max_tokens", labels, max_tokens_,
                     "Histogram of the max_tokens request parameter.");
    out.Distribution("vllm:time_to_first_token_seconds", labels, first_token_,
                     "Histogram of time to first token in seconds.");
    out.Distribution("vllm:inter_token_latency_seconds", labels, inter_token_,
                     "Histogram of inter-token latency in seconds.");
    out.Distribution("vllm:time_per_output_token_seconds", labels, inter_token_,
                     "Histogram of inter-token latency in seconds, under its old name.");
    out.Distribution("vllm:request_time_per_output_token_seconds", labels, per_token_,
                     "Histogram of time_per_output_token_seconds per request.");
    out.Distribution("vllm:e2e_request_latency_seconds", labels, e2e_,
                     "Histogram of e2e request latency in seconds.");
    out.Distribution("vllm:request_queue_time_seconds", labels, queue_,
                     "Histogram of time spent in WAITING phase for request.");
    out.Distribution("vllm:request_inference_time_seconds", labels, inference_,
                     "Histogram of time spent in RUNNING phase for request.");
    out.Distribution("vllm:request_prefill_time_seconds", labels, prefill_,
                     "Histogram of time spent in PREFILL phase for request.");
    out.Distribution("vllm:request_decode_time_seconds", labels, decode_,
                     "Histogram of time spent in DECODE phase for request.");
    out.Distribution(
        "vllm:request_prefill_kv_computed_tokens", labels, computed_,
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).");
    AppendCacheConfig(out);
  }

  out.Family("http_requests_total", "counter",
             "Total number of requests by method, status and handler.");
  for (const auto& [name, handler] : handlers_) {
    for (const auto& [key, count] : handler.requests) {
      out.Sample("http_requests_total",
                 fmt::format("handler=\"{}\",method=\"{}\",status=\"{}\"", Escape(name),
                             Escape(key.first), key.second),
                 static_cast<double>(count));
    }
  }
  const auto summary = [&out](const char* name, const char* help, const auto& handlers,
                              auto&& bytes) {
    out.Family(name, "summary", help);
    for (const auto& [handler_name, handler] : handlers) {
      const std::string labels = fmt::format("handler=\"{}\"", Escape(handler_name));
      out.Sample(std::string(name) + "_count", labels, static_cast<double>(handler.count));
      out.Sample(std::string(name) + "_sum", labels, static_cast<double>(bytes(handler)));
    }
  };
  summary("http_request_size_bytes", "Content length of incoming requests by handler.", handlers_,
          [](const Handler& handler) { return handler.request_bytes; });
  summary("http_response_size_bytes", "Content length of outgoing responses by handler.", handlers_,
          [](const Handler& handler) { return handler.response_bytes; });
  out.Distribution("http_request_duration_highr_seconds", "", http_seconds_,
                   "Latency with many buckets but no labels.");
  out.Family("http_request_duration_seconds", "histogram", "Latency with few buckets by handler.");
  for (const auto& [name, handler] : handlers_) {
    for (const auto& [method, histogram] : handler.seconds) {
      out.Buckets("http_request_duration_seconds",
                  fmt::format("handler=\"{}\",method=\"{}\"", Escape(name), Escape(method)),
                  histogram);
    }
  }
  return out.Take();
}

std::string Metrics::ThroughputLine() {
  const MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - line_time_).count();
  const uint64_t prompt = prompt_tokens_ - line_prompt_,
                 generation = generation_tokens_ - line_generation_;
  const bool busy = prompt + generation > 0 || last_.running > 0 || last_.waiting > 0;
  const bool report =
      busy || line_busy_;  // One more line after the last busy one shows that it is quiet.
  line_time_ = now;
  line_prompt_ = prompt_tokens_;
  line_generation_ = generation_tokens_;
  line_busy_ = busy;
  if (!report || seconds <= 0) return "";
  const double usage = last_.total_blocks > 0 ? 100.0 * static_cast<double>(last_.used_blocks) /
                                                    static_cast<double>(last_.total_blocks)
                                              : 0;
  const double hits = prefix_queries_ > 0 ? 100.0 * static_cast<double>(prefix_hits_) /
                                                static_cast<double>(prefix_queries_)
                                          : 0;
  return fmt::format(
      "Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} "
      "tokens/s, Running: {} reqs, "
      "Waiting: {} reqs, {} KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
      static_cast<double>(prompt) / seconds, static_cast<double>(generation) / seconds,
      last_.running, last_.waiting, info_.device == DeviceKind::kCuda ? "GPU" : "CPU", usage, hits);
}

}  // namespace sluice
