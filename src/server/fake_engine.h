// An engine for tests: answers from its own thread with the tokens that a test chose, and records
// the requests.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace sluice {

class FakeEngine : public Engine {
 public:
  // The tokens of one sequence, and how it ends after them.
  struct Script {
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kLength;
    std::optional<int32_t> stop_token = std::nullopt;
    std::optional<Error> error = std::nullopt;  // sent after the tokens instead of a finish reason
  };
  // Chooses the script for a request. Called on the submitting thread.
  std::function<Script(const Request&)> script = [](const Request&) {
    return Script{{10, 11, 12}};
  };
  // Returns the vector of a prompt. Used if EngineInfo::pooling is set.
  std::function<std::vector<float>(const Request&)> vector = [](const Request& request) {
    return std::vector<float>{static_cast<float>(request.prompt.size()), 1, 0, -1};
  };
  std::chrono::microseconds step_time{0};
  std::atomic<bool> is_healthy{true};
  std::atomic<const char*> failure_reason{""};
  std::atomic<bool> is_second_lost{false};  // whether the second of several engines has failed

  explicit FakeEngine(int64_t vocab_size = 512, int64_t max_model_len = 512) {
    info_.model.vocab_size = vocab_size;
    info_.max_model_len = max_model_len;
    info_.num_blocks = 100;
    info_.block_size = 16;
    info_.kv_tokens = 1600;
    info_.request_memory_bytes = int64_t{1} << 30;
    thread_ = std::thread([this] { Loop(); });
  }
  ~FakeEngine() override { End(); }
  // Ends the engine: once this returns, no sink is called. As with the real engine, call it before
  // the server ends.
  void End() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // While held, the engine accepts requests but makes no step, so that submitted requests are
  // certain to be running.
  void Hold(bool is_held) {
    {
      std::lock_guard lock(mutex_);
      is_held_ = is_held;
    }
    wake_.notify_all();
  }

  EngineInfo& mutable_info() { return info_; }
  const EngineInfo& info() const override { return info_; }

  Result<RequestHandle> Submit(Request request) override {
    if (shutting_down_ && !request.was_accepted)
      return Fail(ErrorCode::kUnavailable, "the engine is shutting down");
    Running running;
    running.script = script(request);
    std::lock_guard lock(mutex_);
    running.request = std::move(request);
    running.positions.assign(static_cast<size_t>(running.request.num_sequences), 0);
    running.done.assign(running.positions.size(), false);
    requests_.push_back(running.request);
    requests_.back().sink.reset();
    const RequestHandle handle = ++last_handle_;
    running_.emplace(handle, std::move(running));
    wake_.notify_all();
    return handle;
  }
  void Abort(RequestHandle handle) override {
    std::lock_guard lock(mutex_);
    if (running_.erase(handle) > 0) ++num_aborted_;
  }
  void StopSequence(RequestHandle handle, int sequence) override {
    std::lock_guard lock(mutex_);
    stopped_.insert({handle, sequence});
  }
  bool healthy() const override { return is_healthy; }
  std::string failure() const override { return failure_reason.load(); }
  std::vector<EngineState> states() const override {
    std::vector<EngineState> all = {{healthy(), failure()}};
    if (info_.num_engines > 1) all.resize(static_cast<size_t>(info_.num_engines));
    if (is_second_lost) all.at(1) = {.is_healthy = false, .reason = "rank 1 has ended"};
    return all;
  }
  int64_t num_unfinished() const override {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(running_.size());
  }
  void BeginShutdown() override { shutting_down_ = true; }
  bool ResetPrefixCache() override { return true; }
  void ResetImageRows() override { ++num_resets; }
  std::atomic<int> num_resets{0};  // number of ResetImageRows() calls

  // Returns the submitted requests, without sinks.
  std::vector<Request> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  int num_aborted() const { return num_aborted_; }
  int64_t num_steps() const { return num_steps_; }

 private:
  struct Running {
    Request request;
    Script script;
    std::vector<size_t> positions;
    std::vector<bool> done;
    bool prompted = false;
  };

  static TokenLogprobs Logprobs(int32_t token, int count) {
    TokenLogprobs result{token, -0.5f, 1, {}};
    for (int i = 0; i < count; ++i)
      result.top.emplace_back(i == 0 ? token : 60 + i, -0.5f * static_cast<float>(i + 1));
    return result;
  }

  void Loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (running_.empty() || is_held_) {
        wake_.wait(lock, [this] { return stopping_ || (!running_.empty() && !is_held_); });
        continue;
      }
      std::vector<std::function<void()>> news;
      for (auto it = running_.begin(); it != running_.end();) {
        Step(it->first, it->second, news);
        const bool done = std::find(it->second.done.begin(), it->second.done.end(), false) ==
                          it->second.done.end();
        it = done ? running_.erase(it) : std::next(it);
      }
      lock.unlock();
      for (const auto& tell : news) tell();
      ++num_steps_;
      if (step_time.count() > 0) std::this_thread::sleep_for(step_time);
      lock.lock();
    }
  }

  // Generates one token for each sequence.
  void Step(RequestHandle handle, Running& running, std::vector<std::function<void()>>& news) {
    const SamplingParams& sampling = running.request.sampling;
    const auto sink = running.request.sink;
    if (!running.prompted) {
      running.prompted = true;
      PromptResult result;
      if (sampling.prompt_logprobs) {
        for (size_t i = 0; i < running.request.prompt.size(); ++i) {
          result.logprobs.push_back(i == 0 ? std::nullopt
                                           : std::optional(Logprobs(running.request.prompt[i],
                                                                    *sampling.prompt_logprobs)));
        }
      }
      news.push_back([sink, result] { sink->OnPrompt(result); });
    }
    if (info_.pooling && !running.script.error) {
      running.done.assign(running.done.size(), true);
      news.push_back(
          [sink, pooled = vector(running.request)] { sink->OnPooled(std::vector<float>(pooled)); });
      return;
    }
    for (size_t i = 0; i < running.positions.size(); ++i) {
      if (running.done[i]) continue;
      if (running.script.error && running.positions[i] >= running.script.tokens.size()) {
        running.done.assign(running.done.size(), true);
        news.push_back([sink, error = *running.script.error] { sink->OnError(error); });
        return;
      }
      SequenceUpdate update;
      update.sequence = static_cast<int>(i);
      size_t& position = running.positions[i];
      if (stopped_.contains({handle, update.sequence})) {
        update.finish = FinishReason::kStop;
      } else {
        if (position < running.script.tokens.size()) {
          const int32_t token = running.script.tokens[position];
          update.tokens.push_back(token);
          if (sampling.logprobs) update.logprobs.push_back(Logprobs(token, *sampling.logprobs));
        }
        ++position;
        if (position >= running.script.tokens.size() && !running.script.error) {
          update.finish = running.script.finish;
          update.stop_token = running.script.stop_token;
        } else if (static_cast<int64_t>(position) >= sampling.max_tokens) {
          update.finish = FinishReason::kLength;
        }
      }
      running.done[i] = update.finish.has_value();
      news.push_back([sink, update] { sink->OnUpdate(update); });
    }
  }

  EngineInfo info_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<RequestHandle, Running> running_;
  std::set<std::pair<RequestHandle, int>> stopped_;
  std::vector<Request> requests_;
  RequestHandle last_handle_ = 0;
  bool stopping_ = false, is_held_ = false;
  std::atomic<bool> shutting_down_{false};
  std::atomic<int> num_aborted_{0};
  std::atomic<int64_t> num_steps_{0};
  std::thread thread_;
};

}  // namespace sluice
