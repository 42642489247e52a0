// Counts the requests that are not completely answered.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "server/api/guard/client_limits.h"
#include "server/http/http_types.h"

namespace sluice {

// The response writer of a request that counts in `pending` and in the limits of its client until
// the answer is complete or the writer is destroyed. Decrements the count before it sends the end
// of the answer.
class PendingWriter : public ResponseWriter {
 public:
  // `ticket` may be null.
  PendingWriter(std::shared_ptr<ResponseWriter> writer,
                std::shared_ptr<std::atomic<int64_t>> pending,
                std::shared_ptr<ClientLimits::Ticket> ticket)
      : writer_(std::move(writer)), pending_(std::move(pending)), ticket_(std::move(ticket)) {}
  ~PendingWriter() override { Leave(); }

  void Send(HttpResponse response) override {
    Leave();
    writer_->Send(std::move(response));
  }
  void StartStream(HttpResponse response) override { writer_->StartStream(std::move(response)); }
  void WriteChunk(std::string_view data) override { writer_->WriteChunk(data); }
  void EndStream() override {
    Leave();
    writer_->EndStream();
  }
  void Describe(AnswerNotes notes) override { writer_->Describe(std::move(notes)); }
  void CorrectNotes(const std::function<void(AnswerNotes&)>& change) override {
    writer_->CorrectNotes(change);
  }
  bool backlogged() const override { return writer_->backlogged(); }
  bool closed() const override { return writer_->closed(); }
  void SetCallbacks(std::function<void()> on_closed, std::function<void()> on_writable) override {
    writer_->SetCallbacks(std::move(on_closed), std::move(on_writable));
  }

 private:
  void Leave() {
    if (pending_ == nullptr) return;
    --*std::exchange(pending_, nullptr);
    if (ticket_ != nullptr) ticket_->Leave();
  }

  const std::shared_ptr<ResponseWriter> writer_;
  std::shared_ptr<std::atomic<int64_t>> pending_;
  const std::shared_ptr<ClientLimits::Ticket> ticket_;
};

}  // namespace sluice
