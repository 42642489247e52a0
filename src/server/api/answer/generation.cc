#include "server/api/answer/generation.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "base/firewall.h"
#include "base/mutex.h"
#include "constraints/deferred_constraint.h"
#include "engine/adapters.h"
#include "parsers/answer_reader.h"
#include "server/api/answer/output_log.h"
#include "server/api/common/adapter_wait.h"
#include "server/api/request/prompt_thought.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// The maximum time that a generation may occupy a worker before other tasks have their turn.
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
        splits_logprobs_(asked_->splits_logprobs),
        stream_interval_(asked_->stream_interval),
        may_stop_(!asked_->stop.empty() || asked_->repetition.max_size > 0),
        ticket_(std::move(asked_->ticket)),
        trace_(std::move(asked_->trace)),
        parsing_(asked_->parsing
                     ? std::make_unique<const AnswerParsing>(*std::move(asked_->parsing))
                     : nullptr),
        answer_(std::move(answer)) {
    for (const Prompt& prompt : asked_->prompts)
      usage_.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
    usage_.clock = asked_->clock;
    const SharedList<std::string> stops = asked_->stop;
    choices_.reserve(asked_->prompts.size() * static_cast<size_t>(n_));
    for (size_t prompt = 0; prompt < asked_->prompts.size(); ++prompt) {
      const StopRules rules{stops, include_stop_, asked_->sampling[prompt].min_tokens};
      // With a parser, the reader searches for stop strings, outside of reasoning.
      const bool reads = parsing_ != nullptr;
      const ReasoningParser* const thoughts = reads ? parsing_->reasoning : nullptr;
      const std::string turn = thoughts == nullptr
                                   ? ""
                                   : LastThoughtMark(asked_->prompts[prompt], thoughts->format,
                                                     *model_->tokenizer, model_->end_tokens);
      for (int i = 0; i < n_; ++i) {
        choices_.push_back(
            {.text = TextStream(*model_->tokenizer, asked_->prompts[prompt].tokens,
                                reads ? StopRules() : rules, asked_->skip_special_tokens),
             .repetition = RepetitionWatch::Make(asked_->repetition),
             .reader = reads ? parsing_->MakeReader(turn, rules) : nullptr,
             .min_tokens = rules.min_tokens,
             .may_think = reads && turn.empty() && parsing_->thinking != false});
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
    // If the request is deferred, only the connection's callbacks keep this object alive.
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
    if (client == nullptr)
      return active_->Remove(this);  // The request ended while it was
                                     // deferred.
    // Frees the request's data, and its adapter once the engine no longer needs it.
    const std::unique_ptr<GenerationRequest> asked = std::move(asked_);
    for (size_t prompt = 0; prompt < asked->prompts.size(); ++prompt) {
      Request request;
      request.id = asked->id;
      request.prompt = std::move(asked->prompts[prompt].tokens);
      request.images = std::move(asked->prompts[prompt].images);
      request.rows = std::move(asked->prompts[prompt].rows);
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
    // The callbacks are set after all prompts are submitted, because they need all handles. If the
    // client has disconnected meanwhile, they are called immediately. They keep the generation
    // alive while a slow client catches up after the engine has finished.
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

  // The state of the prompts. Events are processed once all handles are known.
  enum class Stage { kHeld, kSubmitting, kSubmitted };
  // An event of the reader, and the logprobs of its tokens.
  struct ParsedEvent {
    ParserEvent event;
    std::vector<TokenLogprobs> logprobs = {};  // only for content, with splits_logprobs
  };
  struct Choice {
    TextStream text;
    std::unique_ptr<RepetitionWatch> repetition;  // null: repetition is not detected
    std::unique_ptr<AnswerReader> reader;         // null: all text is content
    int64_t min_tokens = 0;                       // stop strings that end inside the first
                                                  // min_tokens tokens are ignored
    bool may_think = false;                       // whether a constrained answer may begin with a
                                                  // thought
    TokensEvent pending = {};                     // not written yet
    std::vector<WeightSpan> weights = {};         // for all tokens so far
    std::vector<ParsedEvent> parsed = {};         // not written yet
    // With splits_logprobs: logprobs of tokens that are not yet known to be content or part of a
    // mark.
    std::vector<TokenLogprobs> unsettled = {};
    std::unique_ptr<OutputLog> log = {};  // null without --enable-log-outputs
    bool started = false;
    bool finished = false;
    bool was_stopped = false;  // whether finish reason "stop" was sent to the client
  };
  struct ServerAbort {};
  struct SinkEvent;
  using Queue = std::vector<SinkEvent>;  // unlike a deque, it allocates nothing while empty
  // An event from the engine or the server, queued for a worker.
  struct SinkEvent {
    int prompt = 0;
    std::variant<PromptResult, SequenceUpdate, Error, ServerAbort, KeepAliveEvent> what;
  };

  // Receives the engine's events for one prompt.
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
    bool OnStats(const RequestStats& stats, EngineObserver* observer) override {
      return generation_->TakeStats(prompt_, stats, observer);
    }

   private:
    const std::shared_ptr<GenerationImpl> generation_;
    const int prompt_;
  };

  // --- Called on the engine's thread and the I/O threads.

  // Statistics that are reported once the finish reasons sent to the client are known.
  struct Uncounted {
    RequestStats stats;
    EngineObserver* observer = nullptr;  // may be null; outlives the engine, as `model_` does
  };

  // A stop string or a repetition may still be found in the last tokens of a sequence that the
  // engine ended at its maximum length. So the sequence's statistics are reported after its text
  // has been read.
  bool TakeStats(int prompt, const RequestStats& stats, EngineObserver* observer) {
    const auto is_cut = [](const SequenceStats& sequence) {
      return sequence.reason == FinishReason::kLength;
    };
    if (may_stop_ && std::any_of(stats.sequences.begin(), stats.sequences.end(), is_cut)) {
      MutexLock lock(mutex_);
      if (!cancelled_) {
        uncounted_.emplace(prompt, Uncounted{stats, observer});
        return true;
      }
      const bool is_read = released_;
      lock.Unlock();
      if (is_read) {
        Count(prompt, {stats, observer});
        return true;
      }
    }
    if (trace_ != nullptr) trace_->Finish(stats);
    return false;
  }

  // REQUIRES: no worker changes the choices meanwhile.
  void Count(int prompt, Uncounted uncounted) const {
    for (size_t i = 0; i < uncounted.stats.sequences.size(); ++i) {
      if (choices_[static_cast<size_t>(prompt) * static_cast<size_t>(n_) + i].was_stopped)
        uncounted.stats.sequences[i].reason = FinishReason::kStop;
    }
    if (trace_ != nullptr) trace_->Finish(uncounted.stats);
    if (uncounted.observer != nullptr) uncounted.observer->OnFinished(uncounted.stats);
  }

  // Reports the statistics of a prompt whose choices have all finished.
  void CountPrompt(int prompt) {
    std::optional<Uncounted> uncounted;
    {
      const MutexLock lock(mutex_);
      const auto found = uncounted_.find(prompt);
      if (found == uncounted_.end()) return;
      uncounted = std::move(found->second);
      uncounted_.erase(found);
    }
    Count(prompt, *std::move(uncounted));
  }

  // Queues an event. If that fails, ends the request, because the answer would be incomplete.
  void Post(SinkEvent event) {
    try {
      Enqueue(std::move(event));
    } catch (...) {
      LogCaught("server", "queueing a part of an answer");
      RunGuarded("server", "to end its request", [this] { Cancel(); });
    }
  }

  void Enqueue(SinkEvent event) {
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

  // Appends an event to the queue. While the client is behind, merges an update into the last
  // queued update of the same sequence, which preserves the order of its tokens.
  void Append(SinkEvent event) REQUIRES(mutex_) {
    if (!holding_) ForgetLastUpdates();
    auto* update = std::get_if<SequenceUpdate>(&event.what);
    if (update == nullptr || !holding_) return queue_.push_back(std::move(event));
    if (last_updates_.empty()) last_updates_.resize(choices_.size(), kNone);
    size_t& last_index = last_updates_[ChoiceIndex(event.prompt, *update)];
    if (last_index == kNone ||
        std::get<SequenceUpdate>(queue_[last_index].what).weights != update->weights) {
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

  // Empties the list and frees its memory.
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

  // REQUIRES: this thread has set scheduled_.
  void Run() {
    try {
      pool_->Submit(
          [self = std::static_pointer_cast<GenerationImpl>(shared_from_this())] { self->Drain(); });
    } catch (...) {
      const MutexLock lock(mutex_);
      scheduled_ = false;
      throw;
    }
  }

  void Cancel() {
    bool release = false;
    {
      const MutexLock lock(mutex_);
      if (cancelled_) return;
      cancelled_ = true;
      TakeQueue();
      // If a worker is processing this generation, that worker releases it.
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

  // --- Called on one worker thread at a time: the one that set scheduled_.

  void Drain() {
    try {
      DrainQueue();
    } catch (...) {
      try {
        Fail(CaughtApiError("a part of an answer"));
      } catch (...) {  // NOLINT(bugprone-empty-catch)
        // No error can be sent: the connection ends when the client is released.
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

  // Returns true if the client is behind. `batch` is then queued again until the client has caught
  // up.
  bool HoldBack(std::span<SinkEvent> batch) {
    if (!client_->backlogged()) return false;
    MutexLock lock(mutex_);
    holding_ = true;
    lock.Unlock();
    // Checks again, because the client may have caught up before `holding_` was set.
    const bool behind = client_->backlogged();
    lock.Lock();
    // If the client has disconnected meanwhile, this worker must release the generation.
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

  // Puts `batch` back at the front of the queue.
  void PutBack(std::span<SinkEvent> batch) REQUIRES(mutex_) {
    Queue later = TakeQueue();
    for (SinkEvent& event : batch) Append(std::move(event));
    for (SinkEvent& event : later) Append(std::move(event));
  }

  // Continues after the tasks that are already queued for workers.
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
      // Prompts are computed in any order. The usage reports the figures of the request's last
      // prompt.
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

  // Returns the constraint of a prompt. Reasoning is unconstrained unless
  // ServerConfig::constrain_reasoning.
  std::shared_ptr<const Constraint> ConstraintOf(
      const std::shared_ptr<const Constraint>& constraint, size_t prompt) const {
    if (constraint == nullptr || parsing_ == nullptr || parsing_->reasoning == nullptr)
      return constraint;
    if (parsing_->constrains_channels || parsing_->holds_thoughts) return constraint;
    const Choice& choice = choices_[prompt * static_cast<size_t>(n_)];
    const AnswerReader& reader = *choice.reader;
    const bool has_channels = parsing_->reasoning->channels != nullptr;
    if (!has_channels && !reader.reads_thoughts()) return constraint;
    const AnswerStart start{.inside_thought = reader.in_marked_thought(),
                            .may_think = !parsing_->held || has_channels || choice.may_think,
                            .calls_end_it = has_channels && parsing_->tools != nullptr};
    if (!start.inside_thought && !start.may_think) return constraint;
    return AfterThought(constraint, {model_, model_->thought_tokens.get()}, start);
  }

  // If there is a reader, passes it the text that may be shown. A token counts as reasoning if its
  // text is reasoning. `end`: why the answer has ended; nullopt: it has not.
  void ReadText(Choice& choice, std::optional<FinishReason> end = {}) {
    const bool last = end.has_value();
    if (choice.reader == nullptr) return;
    const std::string text = choice.text.Take();
    if (choice.log != nullptr) choice.log->unlogged += text;
    const bool may_stop = choice.text.num_tokens() > choice.min_tokens;
    bool is_content = choice.reader->in_content();
    std::vector<ParserEvent> events = choice.reader->Push(text, may_stop);
    is_content = is_content && choice.reader->in_content();
    if (last) {
      for (ParserEvent& event : choice.reader->Finish(/*is_cut=*/end != FinishReason::kStop))
        events.push_back(std::move(event));
    }
    bool reasons = false;
    const size_t first = choice.parsed.size();
    for (ParserEvent& event : events) {
      reasons |= event.kind == ParserEvent::Kind::kReasoning;
      choice.parsed.push_back({std::move(event)});
    }
    if (reasons && usage_.reasoning_tokens) ++*usage_.reasoning_tokens;
    SettleLogprobs(choice, first, is_content, last);
  }

  // Adds the unsettled logprobs to the content events from index `first` on, which the last token
  // completed. Drops logprobs of reasoning, calls and marks. `is_content`: whether the reader was
  // in content both before and after that token.
  static void SettleLogprobs(Choice& choice, size_t first, bool is_content, bool last) {
    if (choice.unsettled.empty()) return;
    const auto content = std::find_if(
        choice.parsed.begin() + static_cast<std::ptrdiff_t>(first), choice.parsed.end(),
        [](const ParsedEvent& parsed) { return parsed.event.kind == ParserEvent::Kind::kContent; });
    if (content != choice.parsed.end()) {
      content->logprobs = std::exchange(choice.unsettled, {});
    } else if (!is_content) {
      choice.unsettled.clear();
    } else if (last) {  // a token that ended the answer
      choice.parsed.push_back({{}, std::exchange(choice.unsettled, {})});
    }
  }

  // Returns the id that the model wrote, else a new one in vLLM's form.
  std::string CallId(std::string written) const {
    if (!written.empty()) return written;
    return parsing_->tools->name == "mistral" ? RandomHex(9) : "chatcmpl-tool-" + RandomHex(16);
  }

  void AddParsed(int index, std::vector<ParsedEvent> events, AnswerStep& step) const {
    for (auto& [event, logprobs] : events) {
      const bool dropped_call = parsing_->first_call_only && event.call > 0;
      switch (event.kind) {
        case ParserEvent::Kind::kContent:
          step.emplace_back(
              TextEvent{index, std::move(event.text), event.is_break, std::move(logprobs)});
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

  // Writes one step of a choice: its pending tokens, the text that may be shown, and its end.
  void WriteStep(size_t index, std::optional<FinishEvent> finish) {
    Choice& choice = choices_[index];
    TextEvent text{static_cast<int>(index), choice.text.Take()};
    if (choice.reader != nullptr && finish) {
      // As in vLLM, the answer to a named tool choice finishes with "stop", not with "tool_calls".
      finish->called_tools = choice.reader->calls() > 0 && parsing_->choice != ToolChoice::kNamed;
    }
    if (choice.log != nullptr) {
      const int64_t limit = model_->config.max_log_length;
      choice.log->Add(
          choice.reader == nullptr ? text.text : std::exchange(choice.log->unlogged, ""),
          choice.pending.ids.size(), limit);
      if (finish) choice.log->Write(logged_id_, stream_, *finish, limit);
    }
    const auto num_tokens = static_cast<int64_t>(choice.pending.ids.size());
    usage_.completion_tokens += num_tokens;
    usage_.clock.OnTokens(num_tokens);
    choice.pending.choice = static_cast<int>(index);
    if (choice.reader == nullptr && splits_logprobs_) text.logprobs = choice.pending.logprobs;
    AnswerStep step;
    step.reserve(3);
    step.emplace_back(std::exchange(choice.pending, {}));
    if (choice.reader == nullptr) {
      step.emplace_back(std::move(text));
    } else {
      AddParsed(static_cast<int>(index), std::exchange(choice.parsed, {}), step);
    }
    if (finish) finish->weights = std::move(choice.weights);
    if (finish) step.emplace_back(*std::move(finish));
    answer_->Write(std::move(step));
  }

  void EndAsAborted() {
    AbortAll();
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (choices_[i].finished) continue;
      choices_[i].text.Finish();
      ReadText(choices_[i], FinishReason::kAbort);
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
      CountToken(update.weights, choice.weights);
      if (i < update.logprobs.size()) {
        if (choice.reader != nullptr && splits_logprobs_)
          choice.unsettled.push_back(update.logprobs[i]);
        choice.pending.logprobs.push_back(std::move(update.logprobs[i]));
        choice.pending.offsets.push_back(choice.text.num_characters());
      }
      if (silent_end && i + 1 == update.tokens.size()) {
        choice.text.PushSilent();
        continue;
      }
      std::optional<std::string> match = choice.text.Push(update.tokens[i]);
      if (!match) ReadText(choice);
      if (choice.reader != nullptr) match = choice.reader->stopped_by();
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
      ReadText(choice, finish->reason);
      // The reader held back a stop string, because it might have been part of a mark.
      if (choice.reader != nullptr && choice.reader->stopped_by())
        finish =
            FinishEvent{static_cast<int>(index), FinishReason::kStop, *choice.reader->stopped_by()};
      choice.finished = true;
      choice.was_stopped = finish->reason == FinishReason::kStop;
      --num_open_;
      if (IsFinished(prompt)) CountPrompt(prompt);
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

  bool IsFinished(int prompt) const {
    const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(prompt) * n_;
    return std::all_of(begin, begin + n_, [](const Choice& choice) { return choice.finished; });
  }

  // Drops the connection and the entry in `active_`. Sinks that the engine still holds do nothing
  // after that.
  void Release() {
    std::shared_ptr<ResponseWriter> client;
    std::map<int, Uncounted> uncounted;
    {
      const MutexLock lock(mutex_);
      client.swap(client_);
      cancelled_ = true;
      scheduled_ = true;
      released_ = true;
      uncounted.swap(uncounted_);
      TakeQueue();
    }
    for (auto& [prompt, stats] : uncounted) Count(prompt, std::move(stats));
    active_->Remove(this);
    answer_.reset();
  }

  const std::shared_ptr<const ModelContext> model_;
  WorkerPool* const pool_;
  const std::shared_ptr<ActiveRequests> active_;
  std::shared_ptr<ResponseWriter> client_;
  std::unique_ptr<GenerationRequest> asked_;  // null once submitted
  const int n_;
  const bool stream_, include_stop_, splits_logprobs_;
  const int64_t stream_interval_;
  const bool may_stop_;  // whether a stop string or a repetition may end a choice
  const std::shared_ptr<ClientLimits::Ticket> ticket_;
  const std::shared_ptr<const RequestTrace> trace_;
  const std::unique_ptr<const AnswerParsing> parsing_;  // null: all text is content
  std::string logged_id_;                               // set with --enable-log-outputs
  std::unique_ptr<AnswerWriter> answer_;
  std::vector<Choice> choices_;
  size_t num_open_ = 0;
  UsageEvent usage_;
  int last_prompt_ = 0;  // index of the last prompt computed so far
  bool over_ = false;

  Mutex mutex_;
  std::vector<RequestHandle> handles_ GUARDED_BY(mutex_);
  std::map<int, Uncounted> uncounted_ GUARDED_BY(mutex_);  // keyed by prompt
  Queue queue_ GUARDED_BY(mutex_);
  // For each choice: index in queue_ of the update into which later ones are merged, or kNone.
  // Empty: no merging.
  std::vector<size_t> last_updates_ GUARDED_BY(mutex_);
  Stage stage_ GUARDED_BY(mutex_) = Stage::kHeld;
  Clock::time_point last_event_ GUARDED_BY(mutex_) = Clock::now();
  bool scheduled_ GUARDED_BY(mutex_) = false;  // whether a task is queued or running
  bool holding_ GUARDED_BY(mutex_) = false;    // whether the client is behind
  bool cancelled_ GUARDED_BY(mutex_) = false;  // whether further events are dropped
  bool released_ GUARDED_BY(mutex_) = false;   // whether workers are done with the choices
  bool ending_ GUARDED_BY(mutex_) = false;     // whether the operator has aborted the request; a
                                               // slow client does not delay that
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
