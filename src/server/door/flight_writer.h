// Counts the requests that a model is answering.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "server/http/http_types.h"

namespace sluice {

// Thread safety: all members may be used from any thread.
struct Flights {
  std::atomic<int64_t> count{0};
  // Ticks of the steady clock when a request last began or ended.
  std::atomic<int64_t> last_change{0};

  void Touch() { last_change = std::chrono::steady_clock::now().time_since_epoch().count(); }
};

// The response writer of a request that counts in `flights` until the answer is complete or the
// writer is destroyed.
class FlightWriter final : public ResponseWriter {
 public:
  FlightWriter(std::shared_ptr<ResponseWriter> writer, std::shared_ptr<Flights> flights)
      : writer_(std::move(writer)), flights_(std::move(flights)) {
    flights_->Touch();
    ++flights_->count;
  }
  ~FlightWriter() override { Leave(); }

  void Send(HttpResponse response) override {
    writer_->Send(std::move(response));
    Leave();
  }
  void StartStream(HttpResponse response) override { writer_->StartStream(std::move(response)); }
  void WriteChunk(std::string_view data) override { writer_->WriteChunk(data); }
  void EndStream() override {
    writer_->EndStream();
    Leave();
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
    const std::shared_ptr<Flights> flights = std::exchange(flights_, nullptr);
    if (flights == nullptr) return;
    flights->Touch();
    --flights->count;
  }

  const std::shared_ptr<ResponseWriter> writer_;
  std::shared_ptr<Flights> flights_;
};

}  // namespace sluice
