#include "server/api/generation.h"

#include <chrono>
#include <deque>
#include <iterator>
#include <new>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/mutex.h"
#include "constraints/deferred_constraint.h"
#include "parsers/answer_reader.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// How long a generation may occupy a worker before others have their turn.
constexpr auto kTurn = std::chrono::milliseconds(10);

class GenerationImpl : public Generation {
 public:
  GenerationImpl(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                 std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> client,
                 GenerationRequest request, std::unique_ptr<AnswerWriter> answer)
      : model_(std::move(model)),
        pool_(pool),
        active_(std::move(active)),
        client_(std::move(client)),
        request_(std::move(request)),
        answer_(std::move(answer)) {
    for (const Prompt& prompt : request_.prompts)
      usage_.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
    usage_.clock = request_.clock;
    StopRules rules;
    rules.strings = request_.stop;
    rules.include_in_output = request_.include_stop;
    choices_.reserve(request_.prompts.size() * static_cast<size_t>(request_.n));
    for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
      rules.min_tokens = request_.sampling[prompt].min_tokens;
      for (int i = 0; i < request_.n; ++i) {
        choices_.push_back({.text = TextStream(*model_->tokenizer, request_.prompts[prompt].tokens,
                                               rules, request_.skip_special_tokens),
                            .repetition = RepetitionWatch(request_.repetition),
                            .reader = MakeReader(request_.prompts[prompt].text)});
      }
    }
    num_open_ = choices_.size();
    if (request_.parsing && request_.parsing->reasoning != nullptr) usage_.reasoning_tokens = 0;
  }

  void Begin() {
    const auto self = std::static_pointer_cast<GenerationImpl>(shared_from_this());
    const std::weak_ptr<GenerationImpl> weak = self;
    const std::shared_ptr<ResponseWriter> client = client_;
    const bool started = active_->Start(request_.id, weak, [weak] {
      if (const auto generation = weak.lock()) generation->Submit();
    });
    // Held back: only the connection keeps it alive.
    if (!started) SetCallbacks(self, *client);
  }

  void KeepAlive(Clock::duration interval) override {
    if (!request_.stream) return;
    const Clock::time_point now = Clock::now();
    {
      const MutexLock lock(mutex_);
      if (now - last_event_ < interval) return;
      last_event_ = now;
    }
    Post({0, KeepAliveEvent{}});
  }

  void AbortFromServer() override { Post({0, ServerAbort{}}); }
  void FailFromServer(const Error& error) override { Post({0, error}); }

 private:
  static void SetCallbacks(const std::shared_ptr<GenerationImpl>& self, ResponseWriter& client) {
    client.SetCallbacks([self] { self->Cancel(); }, [self] { self->Schedule(/*writable=*/true); });
  }

  void Submit() {
    const auto self = std::static_pointer_cast<GenerationImpl>(shared_from_this());
    std::shared_ptr<ResponseWriter> client;
    {
      const MutexLock lock(mutex_);
      if (stage_ == Stage::kHeld && !cancelled_) {
        stage_ = Stage::kSubmitting;
        client = client_;
      }
    }
    if (client == nullptr) return active_->Remove(this);  // It ended while it was held back.
    for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
      Request request;
      request.id = request_.id;
      request.prompt = std::move(request_.prompts[prompt].tokens);
      request.sampling = std::move(request_.sampling[prompt]);
      request.end_tokens = model_->end_tokens;
      request.num_sequences = request_.n;
      request.priority = request_.priority;
      request.engine = request_.engine;
      request.client = request_.client;
      request.cache_salt = request_.cache_salt;
      request.adapter = request_.adapter;
      request.constraint = ConstraintOf(prompt);
      request.sink = std::make_shared<Sink>(self, static_cast<int>(prompt));
      Result<RequestHandle> handle = model_->engine->Submit(std::move(request));
      const MutexLock lock(mutex_);
      if (!handle) {
        queue_.push_front({0, handle.error()});
        break;
      }
      handles_.push_back(*handle);
    }
    // Set only now, because the callbacks need all handles; a client that has disconnected
    // meanwhile is reported at once. They make the connection keep the generation alive, as nothing
    // else does once the engine is done and a slow client catches up.
    SetCallbacks(self, *client);
    bool gone = false, drain = false;
    {
      const MutexLock lock(mutex_);
      stage_ = Stage::kSubmitted;
      gone = cancelled_;
      drain = !scheduled_;
      scheduled_ = true;
    }
    if (gone) AbortAll();
    if (drain) Drain();
  }

  // Of the prompts; events are only processed once all handles are known.
  enum class Stage { kHeld, kSubmitting, kSubmitted };
  struct Choice {
    TextStream text;
    RepetitionWatch repetition;
    std::unique_ptr<AnswerReader> reader;  // null: all text is the answer
    TokensEvent pending = {};              // not yet given to the answer
    std::vector<ParserEvent> parsed = {};  // nor these
    std::string unlogged = {};             // text that the reader has taken
    std::string logged = {};               // with --enable-log-outputs
    int64_t num_tokens = 0;                // of `logged`
    bool started = false;
    bool finished = false;
  };
  struct ServerAbort {};
  // From the engine and the server, queued for a worker.
  struct SinkEvent {
    int prompt = 0;
    std::variant<PromptResult, SequenceUpdate, Error, ServerAbort, KeepAliveEvent> what;
  };

  // The engine's side of one prompt.
  class Sink : public RequestSink {
   public:
    Sink(std::shared_ptr<GenerationImpl> generation, int prompt)
        : generation_(std::move(generation)), prompt_(prompt) {}
    void OnPrompt(PromptResult result) override { generation_->Post({prompt_, std::move(result)}); }
    void OnUpdate(SequenceUpdate update) override {
      if (const auto& ticket = generation_->request_.ticket; ticket != nullptr)
        ticket->TakeTokens(static_cast<int64_t>(update.tokens.size()));
      generation_->Post({prompt_, std::move(update)});
    }
    void OnError(Error error) override { generation_->Post({prompt_, std::move(error)}); }
    void OnStats(const RequestStats& stats) override {
      if (const auto& trace = generation_->request_.trace; trace != nullptr) trace->Finish(stats);
    }

   private:
    const std::shared_ptr<GenerationImpl> generation_;
    const int prompt_;
  };

  // --- On the engine's and the I/O threads
  // -----------------------------------------------------------------------------

  void Post(SinkEvent event) {
    {
      const MutexLock lock(mutex_);
      if (cancelled_) return;
      if (std::holds_alternative<ServerAbort>(event.what)) {
        ending_ = true;
        holding_ = false;
      }
      Append(std::move(event));
      if (scheduled_ || holding_ || stage_ == Stage::kSubmitting) return;
      scheduled_ = true;
    }
    Run();
  }

  // At the end of the queue. While the client is behind, an update is merged into the last queued
  // update of the same sequence, which keeps the order of its tokens.
  void Append(SinkEvent event) REQUIRES(mutex_) {
    auto* update = std::get_if<SequenceUpdate>(&event.what);
    if (update == nullptr) return queue_.push_back(std::move(event));
    if (last_updates_.empty()) last_updates_.resize(choices_.size());
    SequenceUpdate*& last = last_updates_[ChoiceIndex(event.prompt, *update)];
    if (!holding_ || last == nullptr) {
      queue_.push_back(std::move(event));
      last = &std::get<SequenceUpdate>(queue_.back().what);
      return;
    }
    last->tokens.insert(last->tokens.end(), update->tokens.begin(), update->tokens.end());
    last->logprobs.insert(last->logprobs.end(), std::make_move_iterator(update->logprobs.begin()),
                          std::make_move_iterator(update->logprobs.end()));
    last->finish = update->finish;
    last->stop_token = update->stop_token;
  }

  std::deque<SinkEvent> TakeQueue() REQUIRES(mutex_) {
    last_updates_.clear();
    return std::exchange(queue_, {});
  }

  size_t ChoiceIndex(int prompt, const SequenceUpdate& update) const {
    return static_cast<size_t>(prompt) * static_cast<size_t>(request_.n) +
           static_cast<size_t>(update.sequence);
  }

  void Schedule(bool writable) {
    {
      const MutexLock lock(mutex_);
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
      const MutexLock lock(mutex_);
      if (cancelled_) return;
      cancelled_ = true;
      TakeQueue();
      // A worker that processes it releases it.
      release = !scheduled_ && stage_ != Stage::kSubmitting;
      if (release) scheduled_ = true;
    }
    AbortAll();
    if (release) Release();
  }

  void AbortAll() {
    std::vector<RequestHandle> handles;
    {
      const MutexLock lock(mutex_);
      cancelled_ = true;
      handles = handles_;
    }
    for (const RequestHandle handle : handles) model_->engine->Abort(handle);
  }

  // --- on one worker thread at a time: the one that set scheduled_
  // ----------------------------------------------------------

  void Drain() {
    try {
      DrainQueue();
    } catch (const std::bad_alloc&) {
      try {
        Fail(OutOfMemory());
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
        // Without a word: the connection ends when the client is released.
      }
      Release();
    }
  }

  void DrainQueue() {
    const Clock::time_point start = Clock::now();
    bool worked = false;
    while (true) {
      std::deque<SinkEvent> batch;
      {
        const MutexLock lock(mutex_);
        if (stage_ == Stage::kSubmitting) {
          scheduled_ = false;
          return;
        }
        batch = TakeQueue();
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
        if (over_) break;
        if (std::optional<ApiError> refusal = answer_->Refusal()) Fail(*std::move(refusal));
      }
      if (over_) return Release();
    }
  }

  // True if the client is behind: the rest is queued until it has caught up.
  bool HoldBack(std::deque<SinkEvent>& batch) {
    if (!client_->backlogged()) return false;
    MutexLock lock(mutex_);
    holding_ = true;
    lock.Unlock();
    // Checked again, since the client may have caught up before `holding_` was set.
    const bool behind = client_->backlogged();
    lock.Lock();
    // If the client has left meanwhile, it is this worker that releases the generation.
    if (!behind || !holding_ || cancelled_ || ending_) {
      holding_ = false;
      return false;
    }
    PutBack(batch);
    scheduled_ = false;
    return true;
  }

  void StopSequence(int prompt, int sequence) {
    RequestHandle handle = 0;
    {
      const MutexLock lock(mutex_);
      handle = handles_[static_cast<size_t>(prompt)];
    }
    model_->engine->StopSequence(handle, sequence);
  }

  // At the front of the queue, where it was taken from.
  void PutBack(std::deque<SinkEvent>& batch) REQUIRES(mutex_) {
    std::deque<SinkEvent> later = TakeQueue();
    for (SinkEvent& event : batch) Append(std::move(event));
    for (SinkEvent& event : later) Append(std::move(event));
  }

  // Goes on behind the tasks that are queued for a worker.
  void Yield(std::deque<SinkEvent>& batch) {
    {
      const MutexLock lock(mutex_);
      if (!cancelled_) PutBack(batch);
    }
    Run();
  }

  void Write(AnswerEvent event) {
    AnswerStep step;
    step.push_back(std::move(event));
    answer_->Write(std::move(step));
  }

  void Fail(ApiError error) {
    AbortAll();
    over_ = true;
    Write(ErrorEvent{std::move(error)});
  }

  void Complete() {
    over_ = true;
    Write(usage_);
  }

  void Process(SinkEvent event) {
    if (auto* result = std::get_if<PromptResult>(&event.what)) {
      // Prompts are computed in any order; usage tells of the last one.
      if (event.prompt >= last_prompt_) {
        last_prompt_ = event.prompt;
        usage_.cached_tokens = result->cached_tokens;
        usage_.clock.OnQueued(result->queue_seconds);
      }
      Write(PromptEvent{event.prompt, std::move(*result)});
    } else if (auto* error = std::get_if<Error>(&event.what)) {
      Fail(FromError(*error));
    } else if (std::holds_alternative<ServerAbort>(event.what)) {
      EndAsAborted();
    } else if (std::holds_alternative<KeepAliveEvent>(event.what)) {
      Write(KeepAliveEvent{});
    } else {
      Process(event.prompt, std::get<SequenceUpdate>(std::move(event.what)));
    }
  }

  // Collects as much as --max-log-len allows and logs it once the sequence has ended.
  void LogOutput(Choice& choice, std::string_view text, const FinishEvent* finish) const {
    const int64_t limit = model_->config.max_log_length;
    if (limit < 0 || static_cast<int64_t>(choice.logged.size()) < 4 * limit) choice.logged += text;
    choice.num_tokens += static_cast<int64_t>(choice.pending.ids.size());
    if (finish == nullptr) return;
    const std::string_view shown =
        limit < 0 ? std::string_view(choice.logged)
                  : TrimToCharacters(choice.logged, static_cast<size_t>(limit));
    LOG_INFO("server", "Generated response {}{}: output: {}, output tokens: {}, finish_reason: {}",
             request_.id, request_.stream ? " (streaming complete)" : "", PythonRepr(shown),
             choice.num_tokens, FinishReasonName(*finish));
  }

  std::unique_ptr<AnswerReader> MakeReader(std::string_view prompt) const {
    if (!request_.parsing) return nullptr;
    return std::make_unique<AnswerReader>(
        AnswerReaderOptions{.tools = request_.parsing->tools,
                            .reasoning = request_.parsing->reasoning,
                            .types = request_.parsing->types,
                            .form = request_.parsing->form,
                            .named = request_.parsing->named,
                            .whole = !request_.stream,
                            .streamed = request_.stream,
                            .prompt = prompt,
                            .thinking = request_.parsing->thinking});
  }

  // Reasoning is unconstrained unless ServerConfig::constrain_reasoning.
  std::shared_ptr<const Constraint> ConstraintOf(size_t prompt) const {
    const ReasoningParser* parser = request_.parsing ? request_.parsing->reasoning : nullptr;
    if (request_.constraint == nullptr || parser == nullptr || model_->config.constrain_reasoning)
      return request_.constraint;
    if (request_.parsing->constrains_channels) return request_.constraint;
    ReasoningMarks marks;
    marks.begins_inside = choices_[prompt * static_cast<size_t>(request_.n)].reader->reasoning();
    if (!marks.begins_inside && !parser->format.starts_inside) {
      for (const std::string& mark : parser->format.start) {
        if (const auto id = model_->tokenizer->TokenToId(mark)) marks.begin.push_back(*id);
      }
    }
    if (!marks.begins_inside && marks.begin.empty()) return request_.constraint;
    marks.end = parser->format.end;
    marks.bytes_of = [model = model_](int32_t token) {
      return model->tokenizer->TokenBytes(token);
    };
    return AfterReasoning(request_.constraint, std::move(marks));
  }

  // Gives the reader, if there is one, the text that can be shown by now. A token counts as
  // reasoning if its text is.
  void ReadText(Choice& choice, bool last) {
    if (choice.reader == nullptr) return;
    const std::string text = choice.text.Take();
    if (LogsOutputs()) choice.unlogged += text;
    std::vector<ParserEvent> events = choice.reader->Push(text);
    if (last) {
      for (ParserEvent& event : choice.reader->Finish()) events.push_back(std::move(event));
    }
    bool reasons = false;
    for (ParserEvent& event : events) {
      reasons |= event.kind == ParserEvent::Kind::kReasoning;
      choice.parsed.push_back(std::move(event));
    }
    if (reasons && usage_.reasoning_tokens) ++*usage_.reasoning_tokens;
  }

  // vLLM's form, unless the model writes ids of its own.
  std::string CallId(std::string written) const {
    if (!written.empty()) return written;
    if (request_.parsing->tools->name == "mistral") return RandomHex(9);
    return "chatcmpl-tool-" + RandomHex(16);
  }

  void AddParsed(int index, std::vector<ParserEvent> events, AnswerStep& step) const {
    for (ParserEvent& event : events) {
      const bool dropped_call = request_.parsing->first_call_only && event.call > 0;
      switch (event.kind) {
        case ParserEvent::Kind::kContent:
          step.emplace_back(TextEvent{index, std::move(event.text)});
          break;
        case ParserEvent::Kind::kReasoning:
          if (request_.parsing->include_reasoning)
            step.emplace_back(ReasoningEvent{index, std::move(event.text)});
          break;
        case ParserEvent::Kind::kCallBegin:
          if (dropped_call) break;
          step.emplace_back(ToolCallEvent{index, event.call, CallId(std::move(event.id)),
                                          std::move(event.text), ""});
          break;
        case ParserEvent::Kind::kCallArguments:
          if (dropped_call) break;
          step.emplace_back(ToolCallEvent{index, event.call, "", "", std::move(event.text)});
          break;
      }
    }
  }

  bool LogsOutputs() const { return model_->config.log_requests && model_->config.log_outputs; }

  // One step of a choice: its pending tokens, the text that can be shown by now, and its end.
  void WriteStep(size_t index, std::optional<FinishEvent> finish) {
    Choice& choice = choices_[index];
    TextEvent text{static_cast<int>(index), choice.text.Take()};
    if (choice.reader != nullptr && finish) {
      // As in vLLM, an answer that is one call that it had to make has just stopped.
      finish->called_tools =
          choice.reader->calls() > 0 && request_.parsing->choice != ToolChoice::kNamed;
    }
    if (LogsOutputs()) {
      LogOutput(choice, choice.reader == nullptr ? text.text : std::exchange(choice.unlogged, ""),
                finish ? &*finish : nullptr);
    }
    const auto num_tokens = static_cast<int64_t>(choice.pending.ids.size());
    usage_.completion_tokens += num_tokens;
    usage_.clock.OnTokens(num_tokens);
    choice.pending.choice = static_cast<int>(index);
    AnswerStep step;
    step.reserve(3);
    step.emplace_back(std::exchange(choice.pending, {}));
    if (choice.reader == nullptr) {
      step.emplace_back(std::move(text));
    } else {
      AddParsed(static_cast<int>(index), std::exchange(choice.parsed, {}), step);
    }
    if (finish) step.emplace_back(*std::move(finish));
    answer_->Write(std::move(step));
  }

  void EndAsAborted() {
    AbortAll();
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (choices_[i].finished) continue;
      choices_[i].text.Finish();
      ReadText(choices_[i], /*last=*/true);
      WriteStep(i, FinishEvent{static_cast<int>(i), FinishReason::kAbort});
    }
    Complete();
  }

  void Process(int prompt, SequenceUpdate update) {
    const size_t index = ChoiceIndex(prompt, update);
    Choice& choice = choices_[index];
    if (choice.finished) return;
    std::optional<FinishEvent> finish;
    if (update.finish) {
      finish = FinishEvent{static_cast<int>(index), *update.finish};
      if (update.stop_token) finish->cause = *update.stop_token;
    }
    // The token that ended the sequence counts, but is not shown.
    const bool silent_end = update.finish == FinishReason::kStop && !request_.include_stop;
    for (size_t i = 0; i < update.tokens.size(); ++i) {
      choice.pending.ids.push_back(update.tokens[i]);
      if (i < update.logprobs.size())
        choice.pending.logprobs.push_back(std::move(update.logprobs[i]));
      if (silent_end && i + 1 == update.tokens.size()) {
        choice.text.PushSilent();
        continue;
      }
      std::optional<std::string> match = choice.text.Push(update.tokens[i]);
      if (!match) ReadText(choice, /*last=*/false);
      const bool repeats = !match && choice.repetition.Push(update.tokens[i]) && !update.finish;
      if (!match && !repeats) continue;
      if (!update.finish) StopSequence(prompt, update.sequence);
      finish = FinishEvent{static_cast<int>(index), FinishReason::kStop};
      if (match) {
        finish->cause = *std::move(match);
      } else {
        finish->cause = FinishEvent::Repetition{};
      }
      break;
    }
    if (finish) {
      choice.text.Finish();
      ReadText(choice, /*last=*/true);
      choice.finished = true;
      --num_open_;
    }
    const auto num_pending = static_cast<int64_t>(choice.pending.ids.size());
    const bool due = num_pending >= (choice.started ? request_.stream_interval : 1);
    if (!due && !finish) return;
    choice.started = true;
    if (request_.stream) {
      const MutexLock lock(mutex_);
      last_event_ = Clock::now();
    }
    WriteStep(index, std::move(finish));
    if (num_open_ == 0) Complete();
  }

  // Drops the connection and the entry in `active_`; sinks that the engine still holds do nothing.
  void Release() {
    std::shared_ptr<ResponseWriter> client;
    {
      const MutexLock lock(mutex_);
      client.swap(client_);
      cancelled_ = true;
      scheduled_ = true;
      TakeQueue();
    }
    active_->Remove(this);
    answer_.reset();
  }

  const std::shared_ptr<const ModelContext> model_;
  WorkerPool* const pool_;
  const std::shared_ptr<ActiveRequests> active_;
  std::shared_ptr<ResponseWriter> client_;
  GenerationRequest request_;
  std::unique_ptr<AnswerWriter> answer_;
  std::vector<Choice> choices_;
  size_t num_open_ = 0;
  UsageEvent usage_;
  int last_prompt_ = 0;  // of those that have been computed
  bool over_ = false;

  Mutex mutex_;
  std::vector<RequestHandle> handles_ GUARDED_BY(mutex_);
  std::deque<SinkEvent> queue_ GUARDED_BY(mutex_);
  // In queue_, one per choice, or null.
  std::vector<SequenceUpdate*> last_updates_ GUARDED_BY(mutex_);
  Stage stage_ GUARDED_BY(mutex_) = Stage::kHeld;
  Clock::time_point last_event_ GUARDED_BY(mutex_) = Clock::now();
  bool scheduled_ GUARDED_BY(mutex_) = false;  // a task is queued or running
  bool holding_ GUARDED_BY(mutex_) = false;    // the client is behind
  bool cancelled_ GUARDED_BY(mutex_) = false;  // nothing more is wanted
  bool ending_ GUARDED_BY(mutex_) = false;     // the operator ends it, which waits for no client
};

}  // namespace

void Generation::Start(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                       std::shared_ptr<ActiveRequests> active,
                       std::shared_ptr<ResponseWriter> client, GenerationRequest request,
                       std::unique_ptr<AnswerWriter> answer) {
  const auto generation =
      std::make_shared<GenerationImpl>(std::move(model), pool, std::move(active), std::move(client),
                                       std::move(request), std::move(answer));
  generation->Begin();
}

}  // namespace sluice
