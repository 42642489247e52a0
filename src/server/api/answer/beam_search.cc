#include "server/api/answer/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/firewall.h"
#include "base/mutex.h"
#include "server/api/answer/text_stream.h"
#include "server/api/common/adapter_wait.h"

namespace sluice {
namespace {

bool Has(const std::vector<int32_t>& list, int32_t token) {
  return std::find(list.begin(), list.end(), token) != list.end();
}

double Score(double logprob_sum, size_t length, const BeamRequest& request) {
  return logprob_sum / std::pow(static_cast<double>(length), request.length_penalty);
}

double Score(const Beam& beam, const BeamRequest& request) {
  size_t length = beam.tokens.size();
  if (length > 0 && Has(request.end_tokens, beam.tokens.back())) --length;
  return Score(beam.logprob_sum, length, request);
}

void KeepBest(std::vector<Beam>& beams, const BeamRequest& request) {
  std::stable_sort(beams.begin(), beams.end(), [&](const Beam& a, const Beam& b) {
    return Score(a, request) > Score(b, request);
  });
  if (beams.size() > static_cast<size_t>(request.common.n))
    beams.resize(static_cast<size_t>(request.common.n));
}

// Returns TokensEvent::offsets for `count` tokens, which begin with `ids`.
std::vector<int64_t> OffsetsOf(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                               size_t count) {
  TextStream text(tokenizer, {}, {}, /*skip_special_tokens=*/false);
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < count; ++i) {
    offsets.push_back(text.num_characters());
    if (i < ids.size()) text.Push(ids[i]);
  }
  return offsets;
}

class BeamSearchImpl : public BeamSearch {
 public:
  BeamSearchImpl(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                 std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> client,
                 BeamRequest request, std::unique_ptr<AnswerWriter> answer)
      : model_(std::move(model)),
        pool_(pool),
        active_(std::move(active)),
        client_(std::move(client)),
        request_(std::move(request)),
        answer_(std::move(answer)) {}

  void Begin() {
    const auto self = Self();
    const std::weak_ptr<BeamSearchImpl> weak = self;
    {
      const MutexLock lock(mutex_);
      for (const Prompt& prompt : request_.common.prompts) {
        Search search;
        Beam first;
        first.tokens = prompt.tokens;
        search.prompt_tokens = prompt.tokens.size();
        search.open.push_back(std::move(first));
        searches_.push_back(std::move(search));
      }
    }
    // Only the connection keeps the search alive between two steps. If the client has disconnected,
    // the search ends at this point.
    const std::shared_ptr<ResponseWriter> client = client_;
    client->SetCallbacks([self] { self->Cancel(); }, [] {});
    active_->Start(request_.common.id, weak, [weak] {
      const auto search = weak.lock();
      if (search == nullptr) return;
      StartWithAdapter(*search->model_->engine, search->request_.common.adapter, *search->pool_,
                       weak, [weak](bool has_waited) {
                         const auto ready = weak.lock();
                         if (ready == nullptr) return;
                         {
                           const MutexLock lock(ready->mutex_);
                           ready->has_waited_ = has_waited;
                         }
                         ready->Step();
                       });
    });
  }

  void AbortFromServer() override {
    Fail(ServiceUnavailable("The request was ended by the operator of the server."));
  }
  void FailFromServer(const Error& error) override { Fail(FromError(error)); }

  // Nothing to do: a stream of beams is only sent once the beams are complete.
  void KeepAlive(std::chrono::steady_clock::duration) override {}

 private:
  struct Search {
    size_t prompt_tokens = 0;
    int64_t steps = 0;  // includes the current step
    bool done = false;
    std::vector<Beam> open, completed;
  };
  // Receives the next token of one beam.
  class Sink : public RequestSink {
   public:
    Sink(std::shared_ptr<BeamSearchImpl> search, size_t slot)
        : search_(std::move(search)), slot_(slot) {}
    void OnPrompt(PromptResult) override {}
    void OnUpdate(SequenceUpdate update) override {
      try {
        TakeUpdate(std::move(update));
      } catch (...) {
        search_->Fail(CaughtApiError("a step of a beam search"));
      }
    }
    void OnError(Error error) override { search_->Fail(FromError(error)); }

   private:
    void TakeUpdate(SequenceUpdate update) {
      if (const auto& ticket = search_->request_.common.ticket; ticket != nullptr)
        ticket->TakeTokens(static_cast<int64_t>(update.tokens.size()));
      if (!update.logprobs.empty()) return search_->Take(slot_, std::move(update));
      // An update without a token means that the server is shutting down.
      if (update.finish)
        search_->Fail(FromError({ErrorCode::kUnavailable, "the server is shutting down", ""}));
    }

    const std::shared_ptr<BeamSearchImpl> search_;
    const size_t slot_;
  };

  std::shared_ptr<BeamSearchImpl> Self() {
    return std::static_pointer_cast<BeamSearchImpl>(shared_from_this());
  }

  // Submits all open beams of all unfinished prompts. Finishes the search if there are none.
  void Step() {
    std::vector<Request> requests;
    const auto self = Self();
    {
      MutexLock lock(mutex_);
      if (over_) {
        lock.Unlock();
        return active_->Remove(this);
      }
      handles_.clear();
      next_.clear();
      for (size_t i = 0; i < searches_.size(); ++i) {
        Search& search = searches_[i];
        const SamplingParams& sampling = request_.common.sampling[i];
        if (search.steps >= sampling.max_tokens) continue;
        for (const Beam& beam : search.open) {
          Request request;
          request.id = request_.common.id;
          request.prompt = beam.tokens;
          request.images = request_.common.prompts[i].images;
          request.sampling.temperature = 0;
          request.sampling.max_tokens = 1;
          request.sampling.ignore_eos = true;
          request.sampling.logprobs =
              static_cast<int32_t>(std::min<int64_t>(2 * request_.common.n, model_->vocab_size));
          request.priority = request_.common.priority;
          request.engine = request_.common.engine;
          request.client = request_.common.client;
          request.cache_salt = request_.common.cache_salt;
          request.adapter = request_.common.adapter;
          request.was_accepted = has_waited_ || search.steps > 0;
          request.sink = std::make_shared<Sink>(self, next_.size());
          requests.push_back(std::move(request));
          next_.emplace_back();
        }
        ++search.steps;
      }
      missing_ = next_.size();
    }
    if (requests.empty()) return Finish();
    for (Request& request : requests) {
      Result<RequestHandle> handle = model_->engine->Submit(std::move(request));
      if (!handle) return Fail(FromError(handle.error()));
      {
        const MutexLock lock(mutex_);
        if (!over_) {
          handles_.push_back(*handle);
          continue;
        }
      }
      return model_->engine->Abort(*handle);  // End() ran before this handle was known.
    }
  }

  // Called on the engine's thread.
  void Take(size_t slot, SequenceUpdate update) {
    {
      const MutexLock lock(mutex_);
      if (over_) return;
      next_[slot] = std::move(update.logprobs[0]);
      if (--missing_ > 0) return;
    }
    pool_->Submit([self = Self()] { self->Advance(); });
  }

  // Called on a worker once all candidates of a step have arrived.
  void Advance() {
    try {
      TakeStep();
    } catch (...) {
      Fail(CaughtApiError("a step of a beam search"));
    }
  }

  void TakeStep() {
    {
      const MutexLock lock(mutex_);
      if (over_) return;
      size_t slot = 0;
      for (size_t i = 0; i < searches_.size() && slot < next_.size(); ++i) {
        Search& search = searches_[i];
        if (search.open.empty() || search.done) continue;
        const size_t count = search.open.size();
        StepBeams(search.open, std::span(next_).subspan(slot, count), request_, search.completed);
        slot += count;
        search.done = search.steps >= request_.common.sampling[i].max_tokens;
      }
    }
    Step();
  }

  void Finish() {
    std::unique_ptr<AnswerWriter> answer;
    std::vector<Search> searches;
    {
      const MutexLock lock(mutex_);
      if (over_) return;
      over_ = true;
      answer = std::move(answer_);
      searches = std::move(searches_);
    }
    try {
      WriteBest(*answer, std::move(searches));
    } catch (...) {
      const ApiError error = CaughtApiError("the answer of a beam search");
      RunGuarded("server", "to answer a beam search", [&] { answer->Write({ErrorEvent{error}}); });
    }
    Release();
  }

  void WriteBest(AnswerWriter& answer, std::vector<Search> searches) const {
    UsageEvent usage;
    usage.clock = request_.common.clock;
    for (size_t i = 0; i < searches.size(); ++i) {
      Search& search = searches[i];
      usage.prompt_tokens += static_cast<int64_t>(search.prompt_tokens);
      std::vector<Beam> best =
          BestBeams(std::move(search.completed), std::move(search.open), request_);
      for (size_t j = 0; j < best.size(); ++j) {
        Beam& beam = best[j];
        const int choice = static_cast<int>(i) * request_.common.n + static_cast<int>(j);
        TokensEvent tokens{choice, {}, std::move(beam.logprobs)};
        tokens.ids.assign(beam.tokens.begin() + static_cast<std::ptrdiff_t>(search.prompt_tokens),
                          beam.tokens.end());
        tokens.offsets = OffsetsOf(*model_->tokenizer, tokens.ids, tokens.logprobs.size());
        TextEvent text{choice,
                       model_->tokenizer->Decode(tokens.ids, /*skip_special_tokens=*/false)};
        FinishEvent finish{choice, beam.ended ? FinishReason::kStop : FinishReason::kLength};
        if (beam.ended) finish.cause = beam.end_token;
        usage.completion_tokens += static_cast<int64_t>(tokens.ids.size());
        usage.clock.OnTokens(static_cast<int64_t>(tokens.ids.size()));
        answer.Write({std::move(tokens), std::move(text), std::move(finish)});
      }
    }
    answer.Write({usage});
  }

  void Fail(ApiError error) {
    std::unique_ptr<AnswerWriter> answer = End();
    if (answer == nullptr) return;
    const bool is_queued = RunGuarded("server", "to fail a beam search", [&] {
      pool_->Submit([self = Self(), answer = std::shared_ptr<AnswerWriter>(std::move(answer)),
                     error = std::move(error)] {
        RunGuarded("server", "to answer a beam search",
                   [&] { answer->Write({ErrorEvent{error}}); });
        self->Release();
      });
    });
    if (!is_queued) Release();  // The client's connection ends without an error response.
  }

  void Cancel() {
    if (End() != nullptr) Release();
  }

  // Ends the search: no more beams are submitted. Returns the writer, or null if the search had
  // already ended.
  std::unique_ptr<AnswerWriter> End() {
    std::unique_ptr<AnswerWriter> answer;
    std::vector<RequestHandle> handles;
    {
      const MutexLock lock(mutex_);
      if (over_) return nullptr;
      over_ = true;
      handles.swap(handles_);
      answer = std::move(answer_);
    }
    for (const RequestHandle handle : handles) model_->engine->Abort(handle);
    return answer;
  }

  void Release() {
    active_->Remove(this);
    client_.reset();
  }

  const std::shared_ptr<const ModelContext> model_;
  WorkerPool* const pool_;
  const std::shared_ptr<ActiveRequests> active_;
  std::shared_ptr<ResponseWriter> client_;
  const BeamRequest request_;

  Mutex mutex_;
  std::unique_ptr<AnswerWriter> answer_ GUARDED_BY(mutex_);
  std::vector<Search> searches_ GUARDED_BY(mutex_);
  // One for each open beam, in the order of the prompts.
  std::vector<TokenLogprobs> next_ GUARDED_BY(mutex_);
  size_t missing_ GUARDED_BY(mutex_) = 0;
  std::vector<RequestHandle> handles_ GUARDED_BY(mutex_);
  bool over_ GUARDED_BY(mutex_) = false;
  bool has_waited_ GUARDED_BY(mutex_) = false;  // whether the search waited for its adapter
};

}  // namespace

void StepBeams(std::vector<Beam>& beams, std::span<const TokenLogprobs> next,
               const BeamRequest& request, std::vector<Beam>& completed) {
  struct Candidate {
    size_t beam = 0;
    int32_t token = 0;
    float logprob = 0;
    int32_t rank = 0;
    double score = 0;
  };
  const auto extend = [&](const Candidate& candidate, bool ends) {
    Beam longer = beams[candidate.beam];
    longer.logprob_sum += static_cast<double>(candidate.logprob);
    if (request.logprobs) {
      TokenLogprobs chosen = next[candidate.beam];
      chosen.token = candidate.token;
      chosen.logprob = candidate.logprob;
      chosen.rank = candidate.rank;
      longer.logprobs.push_back(std::move(chosen));
    }
    if (!ends || request.common.include_stop) longer.tokens.push_back(candidate.token);
    longer.ended = ends;
    longer.end_token = candidate.token;
    return longer;
  };
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < beams.size(); ++i) {
    const auto add = [&](int32_t token, float logprob, int32_t rank) {
      Candidate candidate{i, token, logprob, rank, 0};
      if (!request.ignore_eos && Has(request.end_tokens, token)) {
        completed.push_back(extend(candidate, /*ends=*/true));
        return;
      }
      const size_t length =
          beams[i].tokens.size() + (Has(request.end_tokens, token) ? size_t{0} : size_t{1});
      candidate.score = Score(beams[i].logprob_sum + static_cast<double>(logprob), length, request);
      candidates.push_back(candidate);
    };
    add(next[i].token, next[i].logprob, next[i].rank);
    for (size_t rank = 0; rank < next[i].top.size(); ++rank) {
      if (next[i].top[rank].first != next[i].token)
        add(next[i].top[rank].first, next[i].top[rank].second, static_cast<int32_t>(rank) + 1);
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  if (candidates.size() > static_cast<size_t>(request.common.n))
    candidates.resize(static_cast<size_t>(request.common.n));
  std::vector<Beam> kept;
  for (const Candidate& candidate : candidates) kept.push_back(extend(candidate, /*ends=*/false));
  beams = std::move(kept);
  KeepBest(completed, request);
}

std::vector<Beam> BestBeams(std::vector<Beam> completed, std::vector<Beam> open,
                            const BeamRequest& request) {
  for (Beam& beam : open) completed.push_back(std::move(beam));
  KeepBest(completed, request);
  return completed;
}

void BeamSearch::Start(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                       std::shared_ptr<ActiveRequests> active,
                       std::shared_ptr<ResponseWriter> client, BeamRequest request,
                       std::unique_ptr<AnswerWriter> answer) {
  const auto search =
      std::make_shared<BeamSearchImpl>(std::move(model), pool, std::move(active), std::move(client),
                                       std::move(request), std::move(answer));
  search->Begin();
}

}  // namespace sluice
