#include "server/api/pooling/pooling_run.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "engine/engine.h"
#include "server/api/common/active_requests.h"
#include "server/api/common/adapter_wait.h"

namespace sluice {
namespace {

// Ownership: the connection, the engine's sinks and tasks keep this object alive until the request
// has ended.
class PoolingRun : public AbortableRequest, public std::enable_shared_from_this<PoolingRun> {
 public:
  PoolingRun(const RouteCall& call, PoolingJob job, PoolingAnswer answer)
      : model_(call.model),
        pool_(&call.api.pool),
        active_(call.api.active),
        dialect_(call.api.config.dialect),
        ticket_(call.ticket),
        client_id_(call.api.identity->Of(call.request)),
        job_(std::move(job)),
        client_(call.client),
        answer_(std::move(answer)),
        vectors_(job_.prompts.size()),
        num_missing_(job_.prompts.size()) {
    notes_.request_id = job_.id;
    notes_.prompt_tokens = job_.num_tokens();
    if (ticket_ != nullptr) ticket_->TakeTokens(notes_.prompt_tokens);
  }

  void Begin() {
    // Called without the lock: if the client has disconnected, the callback is called immediately.
    Client()->SetCallbacks([self = shared_from_this()] { self->End(std::nullopt); }, [] {});
    const std::weak_ptr<PoolingRun> weak = weak_from_this();
    active_->Start(job_.id, weak, [weak] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      StartWithAdapter(*self->model_->engine, self->job_.adapter, *self->pool_, weak,
                       [weak](bool has_waited) {
                         if (const auto ready = weak.lock()) ready->Submit(has_waited);
                       });
    });
  }

  void AbortFromServer() override { End(ServiceUnavailable("The request was aborted.")); }
  void FailFromServer(const Error& error) override { End(FromError(error)); }
  void KeepAlive(std::chrono::steady_clock::duration) override {}

 private:
  // Receives the engine's events for one prompt.
  class Sink : public RequestSink {
   public:
    Sink(std::shared_ptr<PoolingRun> run, size_t prompt) : run_(std::move(run)), prompt_(prompt) {}
    void OnPrompt(PromptResult result) override { run_->AddCached(result.cached_tokens); }
    void OnUpdate(SequenceUpdate update) override {
      // Pooling models produce no token updates; only shutdown calls this.
      if (update.finish) run_->End(ServiceUnavailable("The server is shutting down."));
    }
    void OnPooled(std::vector<float>&& vector) override {
      try {
        run_->Add(prompt_, std::move(vector));
      } catch (...) {
        run_->End(CaughtApiError("the answer of a pooling request"));
      }
    }
    void OnError(Error error) override { run_->End(FromError(error)); }

   private:
    const std::shared_ptr<PoolingRun> run_;
    const size_t prompt_;
  };

  void Submit(bool has_waited) {
    if (IsOver()) return active_->Remove(this);  // The client disconnected before the run began.
    for (size_t i = 0; i < job_.prompts.size(); ++i) {
      Request request;
      request.id = job_.id;
      request.prompt = std::move(job_.prompts[i].tokens);
      request.second_text = job_.prompts[i].second_text;
      request.sampling.max_tokens = 1;
      request.priority = job_.priority;
      request.engine = job_.engine;
      request.client = client_id_;
      request.cache_salt = job_.cache_salt;
      request.adapter = job_.adapter;
      request.was_accepted = has_waited;
      request.sink = std::make_shared<Sink>(shared_from_this(), i);
      const Result<RequestHandle> handle = model_->engine->Submit(std::move(request));
      if (!handle) return End(FromError(handle.error()));
      {
        const MutexLock lock(mutex_);
        if (!over_) {
          handles_.push_back(*handle);
          continue;
        }
      }
      return model_->engine->Abort(*handle);  // The run ended meanwhile.
    }
  }

  std::shared_ptr<ResponseWriter> Client() {
    const MutexLock lock(mutex_);
    return client_;
  }

  bool IsOver() {
    const MutexLock lock(mutex_);
    return over_;
  }

  void AddCached(int64_t tokens) {
    const MutexLock lock(mutex_);
    notes_.cached_tokens += tokens;
  }

  void Add(size_t prompt, std::vector<float> vector) {
    {
      const MutexLock lock(mutex_);
      if (over_) return;
      vectors_[prompt] = std::move(vector);
      if (--num_missing_ > 0) return;
    }
    pool_->Submit([self = shared_from_this()] { self->Answer(); });
  }

  void Answer() {
    std::vector<std::vector<float>> vectors;
    {
      const MutexLock lock(mutex_);
      if (over_) return;
      vectors = std::move(vectors_);
    }
    try {
      ApiResult<HttpResponse> response = answer_(std::move(vectors));
      if (response)
        Finish(*std::move(response));
      else
        End(std::move(response).error());
    } catch (...) {
      End(CaughtApiError("the answer of a pooling request"));
    }
  }

  // Ends the request with an error. nullopt: the client has disconnected, so nothing is sent.
  void End(std::optional<ApiError> error) {
    if (error) {
      Finish(ErrorResponse(*error, dialect_));
    } else {
      Finish(std::nullopt);
    }
  }

  void Finish(std::optional<HttpResponse> response) {
    std::shared_ptr<ResponseWriter> client;
    std::vector<RequestHandle> handles;
    AnswerNotes notes;
    {
      const MutexLock lock(mutex_);
      if (std::exchange(over_, true)) return;
      client.swap(client_);
      handles.swap(handles_);
      notes = notes_;
    }
    for (const RequestHandle handle : handles) model_->engine->Abort(handle);
    active_->Remove(this);
    if (!response) return;
    client->Describe(std::move(notes));
    client->Send(*std::move(response));
  }

  const std::shared_ptr<const ModelContext> model_;
  WorkerPool* const pool_;
  const std::shared_ptr<ActiveRequests> active_;
  const ApiDialect dialect_;
  const std::shared_ptr<ClientLimits::Ticket> ticket_;
  const uint64_t client_id_;
  PoolingJob job_;

  Mutex mutex_;
  std::shared_ptr<ResponseWriter> client_ GUARDED_BY(mutex_);
  const PoolingAnswer answer_;
  std::vector<std::vector<float>> vectors_ GUARDED_BY(mutex_);
  size_t num_missing_ GUARDED_BY(mutex_);
  std::vector<RequestHandle> handles_ GUARDED_BY(mutex_);
  AnswerNotes notes_ GUARDED_BY(mutex_);
  bool over_ GUARDED_BY(mutex_) = false;
};

// Approximate bytes of the prompts (in the server and in the engine), the F64 sums, the vectors and
// their text.
size_t KeptBytes(const PoolingJob& job, int64_t vector_size) {
  constexpr size_t kSequence = 2048, kNumber = sizeof(double) + sizeof(float) + 16;
  size_t bytes = 0;
  for (const PooledPrompt& prompt : job.prompts)
    bytes += 2 * sizeof(int32_t) * prompt.tokens.size() + kSequence +
             kNumber * static_cast<size_t>(vector_size);
  return bytes;
}

}  // namespace

int64_t PoolingJob::num_tokens() const {
  size_t count = 0;
  for (const PooledPrompt& prompt : prompts) count += prompt.tokens.size();
  return static_cast<int64_t>(count);
}

ApiStatus StartPooling(const RouteCall& call, PoolingJob job, PoolingAnswer answer) {
  const int64_t vector_size = call.model->engine->info().VectorSize();
  API_RETURN_IF_ERROR(ReserveMemory(call.request.memory, KeptBytes(job, vector_size)));
  const auto memory = call.request.memory;
  std::make_shared<PoolingRun>(
      call, std::move(job),
      // Captures the lease to keep it until the answer is made.
      [memory, answer = std::move(answer)](std::vector<std::vector<float>> vectors) {
        return answer(std::move(vectors));
      })
      ->Begin();
  return {};
}

}  // namespace sluice
