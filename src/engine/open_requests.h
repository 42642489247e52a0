// Tracks the requests that several engines are computing.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "engine/observer.h"
#include "engine/request.h"
#include "engine/router.h"

namespace sluice {

class OpenRequests;

// A sink between an engine and a request's own sink. Reports finished tokens to the router, and can
// end the request if the engine does not.
class RoutedSink final : public RequestSink {
 public:
  RoutedSink(OpenRequests& open, Router& router, const Router::Route& route,
             const Request& request);
  ~RoutedSink() override;

  void OnPrompt(PromptResult result) override;
  void OnUpdate(SequenceUpdate update) override;
  void OnPooled(std::vector<float>&& vector) override;
  void OnError(Error error) override;
  bool OnStats(const RequestStats& stats, EngineObserver* observer) override;

  // Fails the request and drops later updates from the engine. No effect if it has ended.
  void Fail(Error error);

  int engine() const { return route_.engine; }

 private:
  // Reports up to `tokens` generated tokens to the router as finished. At least one token per
  // unfinished sequence remains counted as unfinished.
  void FinishOutput(int64_t tokens, bool is_end) REQUIRES(mutex_);
  void FinishPrompt() REQUIRES(mutex_);
  void End() REQUIRES(mutex_);

  OpenRequests& open_;
  Router& router_;
  const Router::Route route_;
  const int64_t prompt_size_;
  const std::shared_ptr<RequestSink> inner_;

  Mutex mutex_;
  int64_t prompt_left_ GUARDED_BY(mutex_);
  int64_t output_left_ GUARDED_BY(mutex_);
  int64_t sequences_left_ GUARDED_BY(mutex_);
  // Whether Fail() has reported the end to the inner sink.
  bool is_told_ GUARDED_BY(mutex_) = false;
  bool has_ended_ GUARDED_BY(mutex_) = false;
};

// Thread safety: all methods may be called from any thread. Memory: one entry per open request; the
// engines limit their number. Ownership: outlives the sinks.
class OpenRequests {
 public:
  void Add(const std::shared_ptr<RoutedSink>& sink);
  void Remove(const RoutedSink* sink);
  int64_t size() const;
  // Fails all requests of `engine`.
  void FailAt(int engine, const Error& error);

 private:
  mutable Mutex mutex_;
  struct Entry {
    int engine = 0;
    std::weak_ptr<RoutedSink> sink;
  };
  std::unordered_map<const RoutedSink*, Entry> sinks_ GUARDED_BY(mutex_);
};

}  // namespace sluice
