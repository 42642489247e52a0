#include "bench/load.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/python_random.h"
#include "bench/stream_chunk.h"
#include "client/stream_client.h"

namespace sluice::bench {
namespace {

constexpr size_t kMaxErrorBytes = 1000;

double WallSeconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the server's error message, if there is one.
std::string ErrorText(std::string_view answer) {
  const auto value = json::Parse(answer);
  const json::Value* error = value ? value->Find("error") : nullptr;
  if (error == nullptr && value) error = &*value;
  const json::Value* message = error != nullptr ? error->Find("message") : nullptr;
  if (message != nullptr && message->is_string()) return message->as_string();
  return std::string(answer.substr(0, kMaxErrorBytes));
}

// Sends one request and records its answer.
class Sender : public StreamHandler {
 public:
  Sender(RequestRecord& record, Api api, bool stream, std::function<void()> on_end)
      : record_(record), chat_(api == Api::kChat), stream_(stream), on_end_(std::move(on_end)) {}

  void OnEvent(double now, std::string_view data) override {
    if (data == "[DONE]" || !record_.error.empty()) return;
    StreamChunk chunk;
    if (!ScanChunk(data, chunk)) {
      record_.error = fmt::format("an event of the server is not JSON: {}", data.substr(0, 200));
      return;
    }
    if (chunk.has_error) {
      record_.error = ErrorText(data);
      return;
    }
    TakeUsage(chunk);
    if (chunk.has_choices) {
      if (first_) record_.ttft = now - record_.start;
      record_.chunks.push_back({now - (first_ ? record_.start : last_),
                                static_cast<uint32_t>(chunk.text.size()),
                                chunk.completion_tokens.value_or(0)});
      first_ = false;
      record_.text += chunk.text;
    }
    if (chunk.has_choices || (chat_ && chunk.has_usage)) last_ = now;
  }

  void OnEnd(double now, StreamEnd end) override {
    record_.ended = true;
    record_.in_flight = now - record_.start;
    if (record_.error.empty()) record_.error = Problem(end);
    if (record_.error.empty() && !stream_) {
      StreamChunk answer;
      if (!ScanChunk(end.body, answer) || !answer.has_choices) {
        record_.error = "the server's answer has no choices";
      } else {
        TakeUsage(answer);
        record_.text = answer.text;
        first_ = false;
        record_.ttft = now - record_.start;
        last_ = now;
      }
    }
    if (record_.error.empty() && first_) {
      record_.error =
          "Never received a valid chunk to calculate TTFT. This response will be marked as failed!";
    }
    record_.success = record_.error.empty();
    record_.latency = record_.success ? last_ - record_.start : 0;
    on_end_();
  }

 private:
  static std::string Problem(const StreamEnd& end) {
    if (!end.error.empty()) return end.error;
    if (end.status == 200) return "";
    return fmt::format("the server answered with {}: {}", end.status, ErrorText(end.body));
  }
  void TakeUsage(const StreamChunk& chunk) {
    if (!chunk.has_usage) return;
    if (chunk.completion_tokens) record_.output_tokens = chunk.completion_tokens;
    if (chunk.prompt_tokens) record_.prompt_tokens = *chunk.prompt_tokens;
  }

  RequestRecord& record_;
  const bool chat_, stream_;
  const std::function<void()> on_end_;
  bool first_ = true;
  double last_ = 0;
};

std::string HeaderLines(const LoadOptions& options, size_t index) {
  std::string lines;
  for (const auto& [name, value] : options.headers) lines += fmt::format("{}: {}\r\n", name, value);
  if (!options.request_id_prefix.empty())
    lines += fmt::format("x-request-id: {}{}\r\n", options.request_id_prefix, index);
  return lines;
}

}  // namespace

std::string RequestBody(const LoadOptions& options, const Prompt& prompt, std::string_view model) {
  json::Value body{json::Value::Object{}};
  if (!model.empty()) body.Set("model", json::Value(model));
  if (options.api == Api::kChat) {
    json::Value::Array parts;
    parts.emplace_back(json::Value::Object{{"type", "text"}, {"text", prompt.text}});
    for (const std::string& url : prompt.images) {
      parts.emplace_back(json::Value::Object{
          {"type", "image_url"}, {"image_url", json::Value(json::Value::Object{{"url", url}})}});
    }
    json::Value message{
        json::Value::Object{{"role", "user"}, {"content", json::Value(std::move(parts))}}};
    body.Set("messages", json::Value(json::Value::Array{std::move(message)}));
    body.Set("max_completion_tokens", json::Value(prompt.output_tokens));
  } else {
    if (prompt.ids.empty()) {
      body.Set("prompt", json::Value(prompt.text));
    } else {
      json::Value::Array ids;
      ids.reserve(prompt.ids.size());
      for (int32_t id : prompt.ids) ids.emplace_back(int64_t{id});
      body.Set("prompt", json::Value(std::move(ids)));
    }
    body.Set("repetition_penalty", json::Value(1.0));
    body.Set("max_tokens", json::Value(prompt.output_tokens));
    body.Set("logprobs", options.logprobs ? json::Value(*options.logprobs) : json::Value(nullptr));
  }
  if (options.api == Api::kChat && options.logprobs) {
    body.Set("logprobs", json::Value(true));
    body.Set("top_logprobs", json::Value(*options.logprobs));
  }
  body.Set("stream", json::Value(options.stream));
  if (options.stream) {
    body.Set("stream_options", json::Value(json::Value::Object{{"include_usage", true}}));
  }
  if (options.ignore_eos) body.Set("ignore_eos", json::Value(true));
  for (const auto& [key, value] : options.extra_body.as_object()) body.Set(key, value);
  return json::Write(body);
}

Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<Prompt>& prompts,
                           const std::vector<Arrival>& arrivals,
                           const std::function<void(int64_t)>& on_progress, int cancel_fd) {
  StreamClient::Options client_options;
  client_options.url = options.url;
  client_options.tls = options.tls;
  client_options.keep_alive = options.keep_alive;
  ASSIGN_OR_RETURN(const std::unique_ptr<StreamClient> client,
                   StreamClient::Create(std::move(client_options)));
  size_t most = StreamClient::MaxConnections();
  if (options.max_concurrency) most = std::min(most, static_cast<size_t>(*options.max_concurrency));

  LoadResult result;
  result.records.resize(prompts.size());
  std::vector<std::unique_ptr<Sender>> senders(prompts.size());
  PythonRandom random(options.seed);
  int64_t num_ended = 0;
  double last_end = 0;
  std::vector<size_t> done;  // finished senders, which are freed outside their callback
  const double start = MonotonicSeconds();
  std::optional<int64_t> last_rate;

  const auto send = [&](size_t i) {
    const bool choose = !options.models.empty();
    const size_t which = !choose                 ? 0
                         : options.random_models ? random.Below(options.models.size())
                                                 : i % options.models.size();
    const std::string body =
        RequestBody(options, prompts[i], choose ? options.models[which] : options.model);
    const std::string headers = HeaderLines(options, i);
    RequestRecord& record = result.records[i];
    record.prompt_tokens = prompts[i].prompt_tokens;
    record.chunks.reserve(
        static_cast<size_t>(std::clamp<int64_t>(prompts[i].output_tokens, 0, 8192)));
    senders[i] = std::make_unique<Sender>(record, options.api, options.stream, [&, i] {
      ++num_ended;
      last_end = MonotonicSeconds();
      done.push_back(i);
      on_progress(num_ended);
    });
    record.start = MonotonicSeconds();
    record.queue_time = record.start - (start + arrivals[i].seconds);
    client->Post(options.path, headers, body, *senders[i]);
  };

  size_t next = 0;
  while (next < prompts.size() || client->num_running() > 0) {
    const double now = MonotonicSeconds();
    while (next < prompts.size() && client->num_running() < most &&
           start + arrivals[next].seconds <= now) {
      const auto rate = static_cast<int64_t>(std::min(arrivals[next].rate, 1e15));
      if (!last_rate) result.rate_changes.push_back({rate, WallSeconds()});
      for (; last_rate && *last_rate < rate; ++*last_rate)
        result.rate_changes.push_back({*last_rate + 1, WallSeconds()});
      last_rate = std::max(rate, last_rate.value_or(rate));
      send(next++);
    }
    const bool due_later = next < prompts.size() && client->num_running() < most;
    const double until =
        due_later ? start + arrivals[next].seconds : std::numeric_limits<double>::infinity();
    if (!client->Poll(until, cancel_fd)) {
      result.interrupted = true;
      break;
    }
    for (size_t i : done) senders[i].reset();
    done.clear();
  }
  result.duration = (result.interrupted ? MonotonicSeconds() : last_end) - start;
  return result;
}

}  // namespace sluice::bench
