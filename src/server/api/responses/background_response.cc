#include "server/api/responses/background_response.h"

#include <atomic>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/mutex.h"
#include "server/api/common/api_error.h"

namespace sluice {
namespace {

class BackgroundClient : public ResponseWriter {
 public:
  BackgroundClient(std::shared_ptr<StoredResponse> response, std::shared_ptr<ResponseStore> store)
      : response_(std::move(response)), store_(std::move(store)) {}
  ~BackgroundClient() override { Fail("the generation has ended early"); }

  // Only errors are sent as a whole response.
  void Send(HttpResponse response) override {
    const Result<json::Value> body = json::Parse(response.body);
    const json::Value* error = body ? body->Find("error") : nullptr;
    const json::Value* message = error != nullptr ? error->Find("message")
                                 : body           ? body->Find("message")
                                                  : nullptr;
    Fail(message != nullptr && message->is_string() ? message->as_string()
                                                    : "the generation has failed");
    Leave();
  }
  void StartStream(HttpResponse) override {}
  void WriteChunk(std::string_view data) override {
    if (data.starts_with(':')) return;  // ignores a keep-alive comment
    response_->AddEvent(data);
    if (!store_->Update(*response_)) {
      Fail(
          fmt::format("it has {} bytes, which do not fit into the response store ({} bytes, "
                      "--response-store-bytes) in addition to the shares of other clients",
                      response_->bytes(), store_->max_bytes()));
    }
  }
  void EndStream() override {
    response_->EndEvents();
    Leave();
  }
  bool backlogged() const override { return false; }
  bool closed() const override { return response_->is_over(); }
  void SetCallbacks(std::function<void()> on_closed, std::function<void()>) override {
    response_->OnEnd(std::move(on_closed));
  }

 private:
  // Fails the response. Has no effect if the response is over.
  void Fail(std::string_view why) {
    if (response_->End("failed", why)) store_->Update(*response_);
  }
  void Leave() {
    store_->Update(*response_);
    response_->OnEnd(nullptr);  // drops the callback, which keeps the generation alive
  }

  const std::shared_ptr<StoredResponse> response_;
  const std::shared_ptr<ResponseStore> store_;
};

class Follower : public std::enable_shared_from_this<Follower> {
 public:
  Follower(std::shared_ptr<StoredResponse> response, size_t first,
           std::shared_ptr<ResponseWriter> client)
      : response_(std::move(response)), client_(std::move(client)), next_(first) {}

  void Start() {
    client_->StartStream(EventStreamHead());
    const std::shared_ptr<ResponseWriter> client = client_;
    client->SetCallbacks([self = shared_from_this()] { self->is_done_ = true; },
                         [self = shared_from_this()] { self->Pump(); });
    response_->Watch([weak = weak_from_this()] {
      const auto self = weak.lock();
      return self != nullptr && self->Pump();
    });
  }

 private:
  // Sends the available events. Returns false once the stream is over.
  bool Pump() {
    const MutexLock lock(mutex_);
    while (!is_done_ && !client_->backlogged()) {
      const std::optional<std::string> event = response_->Event(next_);
      if (event) {
        ++next_;
        client_->WriteChunk(*event);
      } else if (response_->EndsAt(next_)) {
        is_done_ = true;
        client_->EndStream();
      } else {
        break;
      }
    }
    return !is_done_;
  }

  const std::shared_ptr<StoredResponse> response_;
  const std::shared_ptr<ResponseWriter> client_;
  Mutex mutex_;  // held while writing to the client
  size_t next_ GUARDED_BY(mutex_);
  std::atomic<bool> is_done_{false};
};

}  // namespace

std::shared_ptr<ResponseWriter> MakeBackgroundClient(std::shared_ptr<StoredResponse> response,
                                                     std::shared_ptr<ResponseStore> store) {
  return std::make_shared<BackgroundClient>(std::move(response), std::move(store));
}

void FollowResponse(std::shared_ptr<StoredResponse> response, size_t first,
                    std::shared_ptr<ResponseWriter> client) {
  std::make_shared<Follower>(std::move(response), first, std::move(client))->Start();
}

}  // namespace sluice
