#include "engine/open_requests.h"

#include <algorithm>
#include <utility>

#include "base/firewall.h"

namespace sluice {

RoutedSink::RoutedSink(OpenRequests& open, Router& router, const Router::Route& route,
                       const Request& request)
    : open_(open),
      router_(router),
      route_(route),
      prompt_size_(static_cast<int64_t>(request.prompt.size())),
      inner_(request.sink),
      prompt_left_(route.prompt_tokens),
      output_left_(route.output_tokens),
      sequences_left_(request.num_sequences) {}

RoutedSink::~RoutedSink() {
  const MutexLock lock(mutex_);
  End();
}

void RoutedSink::FinishPrompt() {
  if (prompt_left_ > 0) router_.Finish(route_.engine, std::exchange(prompt_left_, 0));
}

void RoutedSink::FinishOutput(int64_t tokens, bool is_end) {
  if (is_end) --sequences_left_;
  const int64_t finished = std::clamp<int64_t>(output_left_ - sequences_left_, 0, tokens);
  output_left_ -= finished;
  if (finished > 0) router_.Finish(route_.engine, finished);
}

void RoutedSink::End() {
  if (std::exchange(has_ended_, true)) return;
  FinishPrompt();
  router_.Finish(route_.engine, std::exchange(output_left_, 0));
  open_.Remove(this);
}

void RoutedSink::OnPrompt(PromptResult result) {
  const MutexLock lock(mutex_);
  FinishPrompt();
  if (!is_told_) inner_->OnPrompt(std::move(result));
}

void RoutedSink::OnUpdate(SequenceUpdate update) {
  const MutexLock lock(mutex_);
  if (!has_ended_) {
    FinishOutput(static_cast<int64_t>(update.tokens.size()), update.finish.has_value());
    if (sequences_left_ == 0) End();
  }
  if (!is_told_) inner_->OnUpdate(std::move(update));
}

void RoutedSink::OnPooled(std::vector<float>&& vector) {
  const MutexLock lock(mutex_);
  End();
  if (!is_told_) inner_->OnPooled(std::move(vector));
}

void RoutedSink::OnError(Error error) {
  const MutexLock lock(mutex_);
  End();
  if (!is_told_) inner_->OnError(std::move(error));
}

bool RoutedSink::OnStats(const RequestStats& stats, EngineObserver* observer) {
  const MutexLock lock(mutex_);
  End();
  return !is_told_ && inner_->OnStats(stats, observer);
}

void RoutedSink::Fail(Error error) {
  {
    const MutexLock lock(mutex_);
    if (has_ended_ || std::exchange(is_told_, true)) return;
    End();
  }
  RequestStats stats;
  stats.reason = FinishReason::kError;
  stats.prompt_tokens = prompt_size_;
  // The request ends, whatever fails before.
  RunGuarded("engine", "to report the statistics of a failed request",
             [&] { inner_->OnStats(stats, /*observer=*/nullptr); });
  RunGuarded("engine", "to fail a request", [&] { inner_->OnError(std::move(error)); });
}

void OpenRequests::Add(const std::shared_ptr<RoutedSink>& sink) {
  const MutexLock lock(mutex_);
  sinks_.emplace(sink.get(), Entry{sink->engine(), sink});
}

void OpenRequests::Remove(const RoutedSink* sink) {
  const MutexLock lock(mutex_);
  sinks_.erase(sink);
}

int64_t OpenRequests::size() const {
  const MutexLock lock(mutex_);
  return std::ssize(sinks_);
}

void OpenRequests::FailAt(int engine, const Error& error) {
  // Releases the references without the mutex, because a sink's destructor takes it.
  std::vector<std::shared_ptr<RoutedSink>> failed;
  {
    const MutexLock lock(mutex_);
    for (const auto& [address, entry] : sinks_) {
      if (entry.engine != engine) continue;
      if (auto held = entry.sink.lock()) failed.push_back(std::move(held));
    }
  }
  // A sink that is not told for lack of memory is still open, and is told in the next call.
  for (const auto& sink : failed)
    RunGuarded("engine", "to fail a request", [&] { sink->Fail(error); });
}

}  // namespace sluice
