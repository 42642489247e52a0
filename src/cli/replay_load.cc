#include "cli/replay_load.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"
#include "cli/progress.h"
#include "cli/remote.h"
#include "cli/signals.h"
#include "client/stream_client.h"
#include "kernels/random_bits.h"
#include "recording/redact.h"

namespace sluice::cli {
namespace {

constexpr int kMaxErrorsShown = 5;

struct LoadRequest {
  int64_t unix_us = 0;
  std::string path;
  std::string body;
};

// Receives one answer.
class LoadAnswer final : public StreamHandler {
 public:
  explicit LoadAnswer(double start) : start_(start) {}
  void OnEvent(double now, std::string_view /*data*/) override {
    if (first_ == 0) first_ = now - start_;
  }
  void OnEnd(double now, StreamEnd end) override {
    seconds_ = now - start_;
    has_ended_ = true;
    if (end.status == 200 && end.error.empty()) return;
    if (!end.unreachable.empty())
      error_ = end.unreachable;
    else if (!end.error.empty())
      error_ = end.error;
    else
      error_ = fmt::format("status {}: {}", end.status, end.body.substr(0, 200));
  }

  bool has_ended() const { return has_ended_; }
  const std::string& error() const { return error_; }
  double seconds() const { return seconds_; }
  double first() const { return first_ > 0 ? first_ : seconds_; }

 private:
  const double start_;
  double first_ = 0, seconds_ = 0;
  bool has_ended_ = false;
  std::string error_;
};

// Replaces the model in a body, if another one is requested.
std::string WithModel(std::string body, const std::optional<std::string>& model) {
  if (!model) return body;
  auto value = json::Parse(body);
  if (!value || !value->is_object()) return body;
  value->Set("model", *model);
  return json::Write(*value);
}

// Returns token ids that are equal where the hashed blocks were equal. Uses small ids, which every
// vocabulary has.
json::Value::Array IdsOf(const recording::AddEvent& add) {
  constexpr uint64_t kFirst = 100, kCount = 900;
  constexpr int64_t kMostTokens = int64_t{1} << 22;
  json::Value::Array ids;
  for (int64_t i = 0; i < std::min(add.num_prompt_tokens, kMostTokens); ++i) {
    const auto block = static_cast<size_t>(i / recording::kHashedTokens);
    const uint64_t seed =
        block < add.block_hashes.size() ? add.block_hashes[block] : kernels::MixBits(add.handle);
    ids.emplace_back(
        static_cast<int64_t>(kFirst + kernels::MixBits(seed + static_cast<uint64_t>(i)) % kCount));
  }
  return ids;
}

std::vector<LoadRequest> LoadOf(const recording::Recording& recorded,
                                const std::optional<std::string>& model) {
  std::vector<LoadRequest> load;
  if (recorded.is_of_hashes()) {
    for (const recording::RecordedRequest& request : recording::RequestsOf(recorded)) {
      json::Value body{json::Value::Object{}};
      if (model) body.Set("model", *model);
      body.Set("prompt", IdsOf(request.add));
      const int64_t tokens = request.num_output_tokens() / std::max(1, request.add.num_sequences);
      body.Set("max_tokens", std::max<int64_t>(1, tokens));
      body.Set("n", static_cast<int64_t>(request.add.num_sequences));
      body.Set("ignore_eos", true);
      body.Set("stream", true);
      load.push_back({request.unix_us, "/v1/completions", json::Write(body)});
    }
    return load;
  }
  const auto stream = recorded.streams().find(0);
  if (stream == recorded.streams().end()) return load;
  for (const recording::RecordedEvent& event : stream->second) {
    if (event.kind != recording::EventKind::kArrival) continue;
    auto arrival = recording::ReadEvent<recording::ArrivalEvent>(event.fields);
    // The path becomes part of the request's first line, so it must be safe.
    const bool is_sound = arrival && arrival->path.starts_with('/') &&
                          arrival->path.find_first_of(" \r\n") == std::string::npos;
    if (is_sound && !arrival->body.empty()) {
      load.push_back(
          {arrival->unix_us, std::move(arrival->path), WithModel(std::move(arrival->body), model)});
    }
  }
  std::ranges::stable_sort(load, {}, &LoadRequest::unix_us);
  return load;
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

Result<int> ReplayLoad(const options::Settings& settings, const recording::Recording& recorded) {
  const std::vector<LoadRequest> load = LoadOf(recorded, settings.Text("replay-served-model"));
  if (load.empty()) {
    return Fail(ErrorCode::kNotFound, "the recording has no requests that can be sent", "record");
  }
  ASSIGN_OR_RETURN(const Remote remote, RemoteAt(settings, settings.TextOr("url")));
  ASSIGN_OR_RETURN(const std::unique_ptr<StreamClient> client,
                   StreamClient::Create({.url = remote.url, .tls = remote.tls}));
  std::string headers;
  for (const auto& [name, value] : remote.headers())
    AppendFormat(headers, "{}: {}\r\n", name, value);
  const InterruptDescriptor interrupt;
  const double speed = *settings.Number("replay-speed");
  const double start = MonotonicSeconds();
  std::deque<LoadAnswer> answers;
  double late = 0;
  bool runs = true;
  for (const LoadRequest& request : load) {
    const double due =
        start + static_cast<double>(request.unix_us - load.front().unix_us) / 1e6 / speed;
    while (runs && MonotonicSeconds() < due) runs = client->Poll(due, interrupt.fd());
    if (!runs) break;
    const double now = MonotonicSeconds();
    late = std::max(late, now - due);
    client->Post(remote.url.path + request.path, headers, request.body, answers.emplace_back(now));
  }
  while (runs && client->num_running() > 0)
    runs = client->Poll(std::numeric_limits<double>::infinity(), interrupt.fd());
  if (!runs) return Fail(ErrorCode::kCancelled, "interrupted");
  std::vector<double> first, seconds;
  int num_failed = 0;
  for (const LoadAnswer& answer : answers) {
    if (answer.error().empty()) {
      first.push_back(answer.first());
      seconds.push_back(answer.seconds());
    } else if (++num_failed <= kMaxErrorsShown) {
      PrintError(fmt::format("error: {}\n", answer.error()));
    }
  }
  fmt::print(
      "sent       {} requests in {:.2f} s, at {} times the recorded speed; the latest was "
      "sent {:.1f} ms after its time\n",
      answers.size(), MonotonicSeconds() - start, speed, 1e3 * late);
  fmt::print("answered   {}, {} failed\n", seconds.size(), num_failed);
  fmt::print("first byte {:.1f} ms at the median, {:.1f} ms at the 99th percentile\n",
             1e3 * Percentile(first, 0.5), 1e3 * Percentile(first, 0.99));
  fmt::print("whole      {:.1f} ms at the median, {:.1f} ms at the 99th percentile\n",
             1e3 * Percentile(seconds, 0.5), 1e3 * Percentile(seconds, 0.99));
  return num_failed == 0 ? 0 : 1;
}

}  // namespace sluice::cli
