#include "server/api/generation.h"

#include <chrono>
#include <cstdint>
#include <iterator>
#include <new>
#include <span>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/mutex.h"
#include "constraints/deferred_constraint.h"
#include "engine/adapters.h"
#include "parsers/answer_reader.h"
#include "server/api/adapter_wait.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// How long a generation may occupy a worker before others have their turn.
constexpr auto kTurn = std::chrono::milliseconds(10);
constexpr size_t kNone = SIZE_MAX;

class GenerationImpl : public Generation {
 public:
  GenerationImpl(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                 std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> client,
                 GenerationRequest request, std::unique_ptr<AnswerWriter> answer)
      : model_(std::move(model)),
        pool_(pool),
        active_(std::move(active)),
        client_(std::move(client)),
        asked_(std::make_unique<GenerationRequest>(std::move(request))),
        n_(asked_->n),
        stream_(asked_->stream),
        include_stop_(asked_->include_stop),
        stream_interval_(asked_->stream_interval),
        ticket_(std::move(asked_->ticket)),
        trace_(std::move(asked_->trace)),
        parsing_(asked_->parsing
                     ? std::make_unique<const AnswerParsing>(*std::move(asked_->parsing))
                     : nullptr),
        answer_(std::move(answer)) {
    for (const Prompt& prompt : asked_->prompts)
      usage_.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
    usage_.clock = asked_->clock;
    StopRules rules;
    rules.strings = asked_->stop;
    rules.include_in_output = include_stop_;
    choices_.reserve(asked_->prompts.size() * static_cast<size_t>(n_));
    for (size_t prompt = 0; prompt < asked_->prompts.size(); ++prompt) {
      rules.min_tokens = asked_->sampling[prompt].min_tokens;
      for (int i = 0; i < n_; ++i) {
        choices_.push_back({.text = TextStream(*model_->tokenizer, asked_->prompts[prompt].tokens,
                                               rules, asked_->skip_special_tokens),
                            .repetition = RepetitionWatch::Make(asked_->repetition),
                            .reader = MakeReader(asked_->prompts[prompt].text)});
        if (model_->config.log_requests && model_->config.log_outputs)
          choices_.back().log = std::make_unique<OutputLog>();
      }
      asked_->prompts[prompt].text = std::string();
    }
    num_open_ = choices_.size();
    if (parsing_ != nullptr && parsing_->reasoning != nullptr) usage_.reasoning_tokens = 0;
  }

  void Begin() {
    const auto self = std::static_pointer_cast<GenerationImpl>(shared_from_this());
    const std::weak_ptr<GenerationImpl> weak = self;
    const std::shared_ptr<ResponseWriter> client = client_;
    const bool waits = asked_->adapter != nullptr && !asked_->adapter->is_ready();
    const bool started = active_->Start(asked_->id, weak, [weak] {
      if (const auto generation = weak.lock()) generation->StartNow();
    });
    // Held back: only the connection keeps it alive.
    if (!started || waits) SetCallbacks(self, *client);
  }

  void KeepAlive(Clock::duration interval) override {
    if (!stream_) return;
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

  void StartNow() {
    const std::weak_ptr<GenerationImpl> weak =
        std::static_pointer_cast<GenerationImpl>(shared_from_this());
    StartWithAdapter(*model_->engine, asked_->adapter, *pool_, weak, [weak](bool has_waited) {
      if (const auto generation = weak.lock()) generation->Submit(has_waited);
    });
  }

  void Submit(bool has_waited) {
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
    // What the request asked for is given up, and its adapter as soon as the engine has done with
    // it.
    const std::unique_ptr<GenerationRequest> asked = std::move(asked_);
    for (size_t prompt = 0; prompt < asked->prompts.size(); ++prompt) {
      Request request;
      request.id = asked->id;
      request.prompt = std::move(asked->prompts[prompt].tokens);
      request.sampling = std::move(asked->sampling[prompt]);
      request.end_tokens = model_->end_tokens;
      request.num_sequences = n_;
      request.priority = asked->priority;
      request.engine = asked->engine;
      request.client = asked->client;
      request.cache_salt = asked->cache_salt;
      request.adapter = asked->adapter;
      request.was_accepted = has_waited;
      request.constraint = ConstraintOf(asked->constraint, prompt);
      request.sink = std::make_shared<Sink>(self, static_cast<int>(prompt));
      Result<RequestHandle> handle = model_->engine->Submit(std::move(request));
      const MutexLock lock(mutex_);
      if (!handle) {
        queue_.insert(queue_.begin(), {0, handle.error()});
        break;
      }
      handles_.push_back(*handle);
    }
    if (LogsOutputs()) logged_id_ = std::move(asked->id);
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
  // With --enable-log-outputs.
  struct OutputLog {
    std::string unlogged;  // text that the reader has taken
    std::string text;
    int64_t num_tokens = 0;  // of it
  };
  struct Choice {
    TextStream text;
    std::unique_ptr<RepetitionWatch> repetition;  // null: none is looked for
    std::unique_ptr<AnswerReader> reader;         // null: all text is the answer
    TokensEvent pending = {};                     // not yet given to the answer
    std::vector<ParserEvent> parsed = {};         // nor these
    std::unique_ptr<OutputLog> log = {};          // null without --enable-log-outputs
    bool started = false;
    bool finished = false;
  };
  struct ServerAbort {};
  struct SinkEvent;
  using Queue = std::vector<SinkEvent>;  // without memory while it is empty
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
      if (const auto& ticket = generation_->ticket_; ticket != nullptr)
        ticket->TakeTokens(static_cast<int64_t>(update.tokens.size()));
      generation_->Post({prompt_, std::move(update)});
    }
    void OnError(Error error) override { generation_->Post({prompt_, std::move(error)}); }
    void OnStats(const RequestStats& stats) override {
      if (const auto& trace = generation_->trace_; trace != nullptr) trace->Finish(stats);
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
    if (!holding_) ForgetLastUpdates();
    auto* update = std::get_if<SequenceUpdate>(&event.what);
    if (update == nullptr || !holding_) return queue_.push_back(std::move(event));
    if (last_updates_.empty()) last_updates_.resize(choices_.size(), kNone);
    size_t& last_index = last_updates_[ChoiceIndex(event.prompt, *update)];
    if (last_index == kNone) {
      last_index = queue_.size();
      return queue_.push_back(std::move(event));
    }
    auto& last = std::get<SequenceUpdate>(queue_[last_index].what);
    last.tokens.insert(last.tokens.end(), update->tokens.begin(), update->tokens.end());
    last.logprobs.insert(last.logprobs.end(), std::make_move_iterator(update->logprobs.begin()),
                         std::make_move_iterator(update->logprobs.end()));
    last.finish = update->finish;
    last.stop_token = update->stop_token;
  }

  // With its space.
  void ForgetLastUpdates() REQUIRES(mutex_) { std::vector<size_t>().swap(last_updates_); }

  Queue TakeQueue() REQUIRES(mutex_) {
    ForgetLastUpdates();
    return std::exchange(queue_, Queue());
  }

  size_t ChoiceIndex(int prompt, const SequenceUpdate& update) const {
    return static_cast<size_t>(prompt) * static_cast<size_t>(n_) +
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
      Queue batch;
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
      for (size_t next = 0; next < batch.size() && !over_; ++next) {
        const std::span<SinkEvent> rest = std::span(batch).subspan(next);
        if (stream_ && HoldBack(rest)) return;
        if (worked && Clock::now() - start > kTurn) return Yield(rest);
        worked = true;
        Process(std::move(batch[next]));
        if (over_) break;
        if (std::optional<ApiError> refusal = answer_->Refusal()) Fail(*std::move(refusal));
      }
      if (over_) return Release();
    }
  }

  // True if the client is behind: the rest is queued until it has caught up.
  bool HoldBack(std::span<SinkEvent> batch) {
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
  void PutBack(std::span<SinkEvent> batch) REQUIRES(mutex_) {
    Queue later = TakeQueue();
    for (SinkEvent& event : batch) Append(std::move(event));
    for (SinkEvent& event : later) Append(std::move(event));
  }

  // Goes on behind the tasks that are queued for a worker.
  void Yield(std::span<SinkEvent> batch) {
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
  void LogOutput(OutputLog& log, std::string_view text, size_t num_tokens,
                 const FinishEvent* finish) const {
    const int64_t limit = model_->config.max_log_length;
    if (limit < 0 || static_cast<int64_t>(log.text.size()) < 4 * limit) log.text += text;
    log.num_tokens += static_cast<int64_t>(num_tokens);
    if (finish == nullptr) return;
    const std::string_view shown = limit < 0
                                       ? std::string_view(log.text)
                                       : TrimToCharacters(log.text, static_cast<size_t>(limit));
    LOG_INFO("server", "Generated response {}{}: output: {}, output tokens: {}, finish_reason: {}",
             logged_id_, stream_ ? " (streaming complete)" : "", PythonRepr(shown), log.num_tokens,
             FinishReasonName(*finish));
  }

  std::unique_ptr<AnswerReader> MakeReader(std::string_view prompt) const {
    if (parsing_ == nullptr) return nullptr;
    return std::make_unique<AnswerReader>(AnswerReaderOptions{.tools = parsing_->tools,
                                                              .reasoning = parsing_->reasoning,
                                                              .types = parsing_->types,
                                                              .form = parsing_->form,
                                                              .named = parsing_->named,
                                                              .whole = !stream_,
                                                              .streamed = stream_,
                                                              .prompt = prompt,
                                                              .thinking = parsing_->thinking});
  }

  // Reasoning is unconstrained unless ServerConfig::constrain_reasoning.
  std::shared_ptr<const Constraint> ConstraintOf(
      const std::shared_ptr<const Constraint>& constraint, size_t prompt) const {
    const ReasoningParser* parser = parsing_ != nullptr ? parsing_->reasoning : nullptr;
    if (constraint == nullptr || parser == nullptr || model_->config.constrain_reasoning)
      return constraint;
    if (parsing_->constrains_channels) return constraint;
    ReasoningMarks marks;
    marks.begins_inside = choices_[prompt * static_cast<size_t>(n_)].reader->reasoning();
    if (!marks.begins_inside && !parser->format.starts_inside) {
      for (const std::string& mark : parser->format.start) {
        if (const auto id = model_->tokenizer->TokenToId(mark)) marks.begin.push_back(*id);
      }
    }
    if (!marks.begins_inside && marks.begin.empty()) return constraint;
    marks.end = parser->format.end;
    marks.bytes_of = [model = model_](int32_t token) {
      return model->tokenizer->TokenBytes(token);
    };
    return AfterReasoning(constraint, std::move(marks));
  }

  // Gives the reader, if there is one, the text that can be shown by now. A token counts as
  // reasoning if its text is.
  void ReadText(Choice& choice, bool last) {
    if (choice.reader == nullptr) return;
    const std::string text = choice.text.Take();
    if (choice.log != nullptr) choice.log->unlogged += text;
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
    if (parsing_->tools->name == "mistral") return RandomHex(9);
    return "chatcmpl-tool-" + RandomHex(16);
  }

  void AddParsed(int index, std::vector<ParserEvent> events, AnswerStep& step) const {
    for (ParserEvent& event : events) {
      const bool dropped_call = parsing_->first_call_only && event.call > 0;
      switch (event.kind) {
        case ParserEvent::Kind::kContent:
          step.emplace_back(TextEvent{index, std::move(event.text), event.is_break});
          break;
        case ParserEvent::Kind::kReasoning:
          if (parsing_->include_reasoning)
            step.emplace_back(ReasoningEvent{index, std::move(event.text), event.is_break});
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
      finish->called_tools = choice.reader->calls() > 0 && parsing_->choice != ToolChoice::kNamed;
    }
    if (choice.log != nullptr) {
      LogOutput(*choice.log,
                choice.reader == nullptr ? text.text : std::exchange(choice.log->unlogged, ""),
                choice.pending.ids.size(), finish ? &*finish : nullptr);
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
    const bool silent_end = update.finish == FinishReason::kStop && !include_stop_;
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
      const bool repeats = !match && choice.repetition != nullptr &&
                           choice.repetition->Push(update.tokens[i]) && !update.finish;
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
    const bool due = num_pending >= (choice.started ? stream_interval_ : 1);
    if (!due && !finish) return;
    choice.started = true;
    if (stream_) {
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
  std::unique_ptr<GenerationRequest> asked_;  // null once it is submitted
  const int n_;
  const bool stream_, include_stop_;
  const int64_t stream_interval_;
  const std::shared_ptr<ClientLimits::Ticket> ticket_;
  const std::shared_ptr<const RequestTrace> trace_;
  const std::unique_ptr<const AnswerParsing> parsing_;  // null: all text is the answer
  std::string logged_id_;                               // with --enable-log-outputs
  std::unique_ptr<AnswerWriter> answer_;
  std::vector<Choice> choices_;
  size_t num_open_ = 0;
  UsageEvent usage_;
  int last_prompt_ = 0;  // of those that have been computed
  bool over_ = false;

  Mutex mutex_;
  std::vector<RequestHandle> handles_ GUARDED_BY(mutex_);
  Queue queue_ GUARDED_BY(mutex_);
  // Positions in queue_ of updates that more are merged into, one per choice, or kNone. Empty while
  // there are none.
  std::vector<size_t> last_updates_ GUARDED_BY(mutex_);
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
