#include "shadow/scorer.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/mutex.h"

namespace sluice::shadow {
namespace {

// Receives the scores of one request, and waits until they are complete.
class ScoreSink final : public RequestSink {
 public:
  void OnPrompt(PromptResult result) override {
    const MutexLock lock(mutex_);
    prompt_ = std::move(result.logprobs);
  }
  void OnUpdate(SequenceUpdate update) override {
    const MutexLock lock(mutex_);
    if (!update.logprobs.empty() && next_.empty()) next_ = std::move(update.logprobs[0].top);
    if (!update.finish) return;
    is_over_ = true;
    changed_.NotifyAll();
  }
  void OnError(Error error) override {
    const MutexLock lock(mutex_);
    error_ = std::move(error);
    is_over_ = true;
    changed_.NotifyAll();
  }

  Result<Scores> Wait(size_t prompt_size) {
    MutexLock lock(mutex_);
    while (!is_over_) changed_.Wait(lock);
    if (error_) return tl::unexpected(*error_);
    Scores scores{.positions = {}, .next = std::move(next_)};
    for (size_t i = prompt_size; i < prompt_.size(); ++i) {
      if (prompt_[i]) scores.positions.push_back(std::move(*prompt_[i]));
    }
    return scores;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::optional<TokenLogprobs>> prompt_ GUARDED_BY(mutex_);
  std::vector<std::pair<int32_t, float>> next_ GUARDED_BY(mutex_);
  std::optional<Error> error_ GUARDED_BY(mutex_);
  bool is_over_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<Scores> ScoreAnswer(Engine& engine, std::span<const int32_t> prompt,
                           std::span<const int32_t> answer, int32_t top) {
  const auto total = static_cast<int64_t>(prompt.size() + answer.size());
  if (total >= engine.info().max_model_len) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("prompt and answer have {} tokens, at most {} are allowed (--max-model-len)",
                    total, engine.info().max_model_len - 1),
        "max-model-len");
  }
  Request request;
  request.id = "shadow";
  request.prompt.assign(prompt.begin(), prompt.end());
  request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = top;
  request.sampling.prompt_logprobs = top;
  request.use_prefix_cache = false;
  const auto sink = std::make_shared<ScoreSink>();
  request.sink = sink;
  RETURN_IF_ERROR(engine.Submit(std::move(request)));
  return sink->Wait(prompt.size());
}

}  // namespace sluice::shadow
