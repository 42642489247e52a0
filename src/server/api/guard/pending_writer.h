// Counts the requests that are not completely answered.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/api/guard/client_limits.h"
#include "server/http/forwarding_writer.h"

namespace sluice {

// The response writer of a request that counts in `pending` and in its client's limits until the
// answer is complete or the writer is destroyed. Decrements the count before it sends the end of
// the answer.
class PendingWriter : public ForwardingWriter {
 public:
  // `ticket` may be null.
  PendingWriter(std::shared_ptr<ResponseWriter> writer,
                std::shared_ptr<std::atomic<int64_t>> pending,
                std::shared_ptr<ClientLimits::Ticket> ticket)
      : ForwardingWriter(std::move(writer)),
        pending_(std::move(pending)),
        ticket_(std::move(ticket)) {}
  ~PendingWriter() override { Leave(); }

  void Send(HttpResponse response) override {
    Leave();
    ForwardingWriter::Send(std::move(response));
  }
  void EndStream() override {
    Leave();
    ForwardingWriter::EndStream();
  }

 private:
  void Leave() {
    if (pending_ == nullptr) return;
    --*std::exchange(pending_, nullptr);
    if (ticket_ != nullptr) ticket_->Leave();
  }

  std::shared_ptr<std::atomic<int64_t>> pending_;
  const std::shared_ptr<ClientLimits::Ticket> ticket_;
};

}  // namespace sluice
