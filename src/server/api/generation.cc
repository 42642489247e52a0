#include "server/api/generation.h"

#include <chrono>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <variant>

#include "base/log.h"
#include "server/api/answer_json.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// After so long a time on a worker others have their turn.
constexpr auto kTurn = std::chrono::milliseconds(10);

class GenerationImpl : public Generation {
 public:
  GenerationImpl(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                 std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> writer,
                 GenerationRequest request, std::unique_ptr<AnswerWriter> answer)
      : model_(std::move(model)),
        pool_(pool),
        active_(std::move(active)),
        writer_(std::move(writer)),
        request_(std::move(request)),
        answer_(std::move(answer)) {
    StopRules rules;
    rules.strings = request_.stop;
    rules.include_in_output = request_.include_stop;
    choices_.reserve(request_.prompts.size() * static_cast<size_t>(request_.n));
    for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
      rules.min_tokens = request_.sampling[prompt].min_tokens;
      for (int i = 0; i < request_.n; ++i) {
        choices_.push_back(Choice{TextStream(*model_->tokenizer, request_.prompts[prompt].tokens,
                                             rules, request_.skip_special_tokens),
                                  {},
                                  RepetitionWatch(request_.repetition),
                                  {},
                                  0,
                                  false,
                                  false});
      }
    }
    num_open_ = choices_.size();
  }

  void Begin() {
    const auto self = std::static_pointer_cast<GenerationImpl>(shared_from_this());
    const std::weak_ptr<GenerationImpl> weak = self;
    const std::shared_ptr<ResponseWriter> writer = writer_;
    const bool started = active_->Start(request_.id, weak, [weak] {
      if (const auto generation = weak.lock()) generation->Submit();
    });
    // While it is held back the connection alone keeps it alive.
    if (!started) SetCallbacks(self, *writer);
  }

  void KeepAlive(Clock::duration interval) override {
    if (!request_.stream) return;
    const Clock::time_point now = Clock::now();
    {
      std::lock_guard lock(mutex_);
      if (now - last_event_ < interval) return;
      last_event_ = now;
    }
    Post({0, Silence{}});
  }

  void AbortFromServer() override { Post({0, ServerAbort{}}); }

 private:
  static void SetCallbacks(const std::shared_ptr<GenerationImpl>& self, ResponseWriter& writer) {
    writer.SetCallbacks([self] { self->Cancel(); }, [self] { self->Schedule(/*writable=*/true); });
  }

  void Submit() {
    const auto self = std::static_pointer_cast<GenerationImpl>(shared_from_this());
    std::shared_ptr<ResponseWriter> writer;
    {
      std::lock_guard lock(mutex_);
      if (stage_ == Stage::kHeld && !cancelled_) {
        stage_ = Stage::kSubmitting;
        writer = writer_;
      }
    }
    if (writer == nullptr) return active_->Remove(this);  // It ended while it was held back.
    for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
      Request request;
      request.id = request_.id;
      request.prompt = std::move(request_.prompts[prompt].tokens);
      request.sampling = std::move(request_.sampling[prompt]);
      request.num_sequences = request_.n;
      request.priority = request_.priority;
      request.cache_salt = request_.cache_salt;
      request.sink = std::make_shared<Sink>(self, static_cast<int>(prompt));
      Result<RequestHandle> handle = model_->engine->Submit(std::move(request));
      std::lock_guard lock(mutex_);
      if (!handle) {
        events_.push_front({0, handle.error()});
        break;
      }
      handles_.push_back(*handle);
    }
    // Callbacks only now: what they do needs all handles. A client that has gone meanwhile is
    // reported at once. The connection keeps the generation alive: once the engine is done nobody
    // else does while a slow client catches up.
    SetCallbacks(self, *writer);
    bool gone = false, drain = false;
    {
      std::lock_guard lock(mutex_);
      stage_ = Stage::kSubmitted;
      gone = cancelled_;
      drain = !scheduled_;
      scheduled_ = true;
    }
    if (gone) AbortAll();
    if (drain) Drain();
  }

  // Where the prompts are: events are only worked on while all handles are known.
  enum class Stage { kHeld, kSubmitting, kSubmitted };
  struct Choice {
    TextStream text;
    ChoiceDelta pending;  // not yet given to the answer
    RepetitionWatch repetition;
    std::string logged;  // with --enable-log-outputs
    int64_t num_tokens = 0;
    bool started = false;
    bool finished = false;
  };
  struct ServerAbort {};
  struct Silence {};
  struct Event {
    int prompt = 0;
    std::variant<PromptResult, SequenceUpdate, Error, ServerAbort, Silence> news;
  };

  // The engine's side of one prompt.
  class Sink : public RequestSink {
   public:
    Sink(std::shared_ptr<GenerationImpl> generation, int prompt)
        : generation_(std::move(generation)), prompt_(prompt) {}
    void OnPrompt(PromptResult result) override { generation_->Post({prompt_, std::move(result)}); }
    void OnUpdate(SequenceUpdate update) override {
      generation_->Post({prompt_, std::move(update)});
    }
    void OnError(Error error) override { generation_->Post({prompt_, std::move(error)}); }

   private:
    const std::shared_ptr<GenerationImpl> generation_;
    const int prompt_;
  };

  // --- On the engine's and the I/O threads
  // -----------------------------------------------------------------------------

  void Post(Event event) {
    {
      std::lock_guard lock(mutex_);
      if (cancelled_) return;
      if (std::holds_alternative<ServerAbort>(event.news)) {
        ending_ = true;
        holding_ = false;
      }
      Append(std::move(event));
      if (scheduled_ || holding_ || stage_ == Stage::kSubmitting) return;
      scheduled_ = true;
    }
    Run();
  }

  // Behind all that waits. While the client is behind, a sequence's news is put into the last
  // update of it that waits: with the order of the queue the order of its tokens is kept.
  // REQUIRES: mutex_ is held.
  void Append(Event event) {
    auto* update = std::get_if<SequenceUpdate>(&event.news);
    if (update == nullptr) return events_.push_back(std::move(event));
    if (last_updates_.empty()) last_updates_.resize(choices_.size());
    SequenceUpdate*& last = last_updates_[ChoiceIndex(event.prompt, *update)];
    if (!holding_ || last == nullptr) {
      events_.push_back(std::move(event));
      last = &std::get<SequenceUpdate>(events_.back().news);
      return;
    }
    last->tokens.insert(last->tokens.end(), update->tokens.begin(), update->tokens.end());
    last->logprobs.insert(last->logprobs.end(), std::make_move_iterator(update->logprobs.begin()),
                          std::make_move_iterator(update->logprobs.end()));
    last->finish = update->finish;
    last->stop_token = update->stop_token;
  }

  // REQUIRES: mutex_ is held.
  std::deque<Event> TakeEvents() {
    last_updates_.clear();
    return std::exchange(events_, {});
  }

  size_t ChoiceIndex(int prompt, const SequenceUpdate& update) const {
    return static_cast<size_t>(prompt) * static_cast<size_t>(request_.n) +
           static_cast<size_t>(update.sequence);
  }

  void Schedule(bool writable) {
    {
      std::lock_guard lock(mutex_);
      if (writable) holding_ = false;
      if (scheduled_ || cancelled_ || stage_ == Stage::kSubmitting) return;
      scheduled_ = true;
    }
    Run();
  }

  void Run() {
    pool_->Submit(
        [self = std::static_pointer_cast<GenerationImpl>(shared_from_this())] { self->Drain(); });
  }

  void Cancel() {
    bool release = false;
    {
      std::lock_guard lock(mutex_);
      if (cancelled_) return;
      cancelled_ = true;
      TakeEvents();
      // Whoever works on it releases it.
      release = !scheduled_ && stage_ != Stage::kSubmitting;
      if (release) scheduled_ = true;
    }
    AbortAll();
    if (release) Release();
  }

  void AbortAll() {
    std::vector<RequestHandle> handles;
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      handles = handles_;
    }
    for (const RequestHandle handle : handles) model_->engine->Abort(handle);
  }

  // --- On one worker thread at a time: whoever set scheduled_
  // ----------------------------------------------------------

  void Drain() {
    const Clock::time_point start = Clock::now();
    bool worked = false;
    while (true) {
      std::deque<Event> batch;
      {
        std::lock_guard lock(mutex_);
        if (stage_ == Stage::kSubmitting) {
          scheduled_ = false;
          return;
        }
        batch = TakeEvents();
        if (batch.empty() && !cancelled_) {
          scheduled_ = false;
          return;
        }
        if (cancelled_) batch.clear();
      }
      if (batch.empty()) return Release();
      while (!batch.empty() && !over_) {
        if (request_.stream && HoldBack(batch)) return;
        if (worked && Clock::now() - start > kTurn) return Yield(batch);
        worked = true;
        Process(std::move(batch.front()));
        batch.pop_front();
        if (!over_ && answer_->is_too_large()) FailAsTooLarge();
      }
      if (over_) return Release();
    }
  }

  // True if the client is behind: what is left waits until it has caught up.
  bool HoldBack(std::deque<Event>& batch) {
    if (!writer_->backlogged()) return false;
    std::unique_lock lock(mutex_);
    holding_ = true;
    lock.unlock();
    // Looked at again, since the writer may have caught up before `holding_` was set.
    const bool behind = writer_->backlogged();
    lock.lock();
    // A client that has left meanwhile counts on whoever works on it to release it.
    if (!behind || !holding_ || cancelled_ || ending_) {
      holding_ = false;
      return false;
    }
    PutBack(batch);
    scheduled_ = false;
    return true;
  }

  // Before what came since it was taken.   REQUIRES: mutex_ is held.
  void PutBack(std::deque<Event>& batch) {
    std::deque<Event> later = TakeEvents();
    for (Event& event : batch) Append(std::move(event));
    for (Event& event : later) Append(std::move(event));
  }

  // Goes on behind what waits for a worker.
  void Yield(std::deque<Event>& batch) {
    {
      std::lock_guard lock(mutex_);
      if (!cancelled_) PutBack(batch);
    }
    Run();
  }

  void FailAsTooLarge() {
    AbortAll();
    over_ = true;
    answer_->OnFailure(AnswerTooLarge(model_->config.max_answer_bytes));
  }

  void Process(Event event) {
    if (auto* result = std::get_if<PromptResult>(&event.news)) {
      answer_->OnPrompt(event.prompt, std::move(*result));
    } else if (auto* error = std::get_if<Error>(&event.news)) {
      AbortAll();
      over_ = true;
      answer_->OnFailure(FromError(*error));
    } else if (std::holds_alternative<ServerAbort>(event.news)) {
      EndAsAborted();
    } else if (std::holds_alternative<Silence>(event.news)) {
      answer_->OnSilence();
    } else {
      Process(event.prompt, std::get<SequenceUpdate>(std::move(event.news)));
    }
  }

  // Collects what --max-log-len lets through and writes it once the sequence has ended.
  void LogOutput(Choice& choice) const {
    const ChoiceDelta& delta = choice.pending;
    const int64_t limit = model_->config.max_log_length;
    if (limit < 0 || static_cast<int64_t>(choice.logged.size()) < 4 * limit)
      choice.logged += delta.text;
    choice.num_tokens += static_cast<int64_t>(delta.tokens.size());
    if (!delta.finish) return;
    const std::string_view shown =
        limit < 0 ? std::string_view(choice.logged)
                  : TrimToCharacters(choice.logged, static_cast<size_t>(limit));
    LOG_INFO("server", "Generated response {}{}: output: {}, output tokens: {}, finish_reason: {}",
             request_.id, request_.stream ? " (streaming complete)" : "", PythonRepr(shown),
             choice.num_tokens, delta.repetition ? "repetition" : FinishReasonName(*delta.finish));
  }

  void EndAsAborted() {
    AbortAll();
    over_ = true;
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      if (choice.finished) continue;
      choice.text.Finish();
      choice.pending.choice = static_cast<int>(i);
      choice.pending.text = choice.text.Take();
      choice.pending.finish = FinishReason::kAbort;
      answer_->OnDelta(std::exchange(choice.pending, ChoiceDelta{}));
    }
    answer_->OnDone();
  }

  void Process(int prompt, SequenceUpdate update) {
    const size_t index = ChoiceIndex(prompt, update);
    Choice& choice = choices_[index];
    if (choice.finished) return;
    ChoiceDelta& pending = choice.pending;
    // The token that ended the sequence counts, but is not shown.
    const bool silent_end = update.finish == FinishReason::kStop && !request_.include_stop;
    for (size_t i = 0; i < update.tokens.size(); ++i) {
      pending.tokens.push_back(update.tokens[i]);
      if (i < update.logprobs.size()) pending.logprobs.push_back(std::move(update.logprobs[i]));
      if (silent_end && i + 1 == update.tokens.size()) {
        choice.text.PushSilent();
      } else if (std::optional<std::string> match = choice.text.Push(update.tokens[i])) {
        if (!update.finish)
          model_->engine->StopSequence(handles_[static_cast<size_t>(prompt)], update.sequence);
        pending.stop_string = std::move(match);
        update.finish = FinishReason::kStop;
        update.stop_token.reset();
        break;
      } else if (choice.repetition.Push(update.tokens[i]) && !update.finish) {
        model_->engine->StopSequence(handles_[static_cast<size_t>(prompt)], update.sequence);
        pending.repetition = true;
        update.finish = FinishReason::kStop;
        break;
      }
    }
    if (update.finish) {
      choice.text.Finish();
      pending.finish = update.finish;
      pending.stop_token = update.stop_token;
      choice.finished = true;
      --num_open_;
    }
    const bool due =
        !choice.started || static_cast<int64_t>(pending.tokens.size()) >= request_.stream_interval;
    if (!due && !update.finish) return;
    if (pending.tokens.empty() && !update.finish) return;
    choice.started = true;
    pending.choice = static_cast<int>(index);
    pending.text = choice.text.Take();
    if (model_->config.log_requests && model_->config.log_outputs) LogOutput(choice);
    if (request_.stream) {
      std::lock_guard lock(mutex_);
      last_event_ = Clock::now();
    }
    answer_->OnDelta(std::exchange(pending, ChoiceDelta{}));
    if (num_open_ == 0) {
      over_ = true;
      answer_->OnDone();
    }
  }

  // Lets go of the connection and of what counts this request; sinks that the engine still holds do
  // nothing.
  void Release() {
    std::shared_ptr<ResponseWriter> writer;
    {
      std::lock_guard lock(mutex_);
      writer.swap(writer_);
      cancelled_ = true;
      scheduled_ = true;
      TakeEvents();
    }
    active_->Remove(this);
    answer_.reset();
  }

  const std::shared_ptr<const ModelContext> model_;
  WorkerPool* const pool_;
  const std::shared_ptr<ActiveRequests> active_;
  std::shared_ptr<ResponseWriter> writer_;
  GenerationRequest request_;
  std::unique_ptr<AnswerWriter> answer_;
  std::vector<Choice> choices_;
  size_t num_open_ = 0;
  bool over_ = false;

  std::mutex mutex_;  // guards what follows
  std::vector<RequestHandle> handles_;
  std::deque<Event> events_;
  std::vector<SequenceUpdate*> last_updates_;  // in events_, one a choice, or null
  Stage stage_ = Stage::kHeld;
  Clock::time_point last_event_ = Clock::now();
  bool scheduled_ = false;  // a task is queued or running
  bool holding_ = false;    // the client is behind
  bool cancelled_ = false;  // nothing more is wanted
  bool ending_ = false;     // the operator ends it, which waits for no client
};

}  // namespace

void Generation::Start(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                       std::shared_ptr<ActiveRequests> active,
                       std::shared_ptr<ResponseWriter> writer, GenerationRequest request,
                       std::unique_ptr<AnswerWriter> answer) {
  const auto generation =
      std::make_shared<GenerationImpl>(std::move(model), pool, std::move(active), std::move(writer),
                                       std::move(request), std::move(answer));
  generation->Begin();
}

}  // namespace sluice
