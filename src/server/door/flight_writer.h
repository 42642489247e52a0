// Counts the requests that a model is answering.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/http/forwarding_writer.h"

namespace sluice {

// Counts the requests that a model is answering. Thread safety: all members may be used from any
// thread.
struct Flights {
  std::atomic<int64_t> count{0};
  // When a request last began or ended, in ticks of the steady clock.
  std::atomic<int64_t> last_change{0};

  void Touch() { last_change = std::chrono::steady_clock::now().time_since_epoch().count(); }
};

// The response writer of a request that counts in `flights` until the answer is complete or the
// writer is destroyed.
class FlightWriter final : public ForwardingWriter {
 public:
  FlightWriter(std::shared_ptr<ResponseWriter> writer, std::shared_ptr<Flights> flights)
      : ForwardingWriter(std::move(writer)), flights_(std::move(flights)) {
    flights_->Touch();
    ++flights_->count;
  }
  ~FlightWriter() override { Leave(); }

  void Send(HttpResponse response) override {
    ForwardingWriter::Send(std::move(response));
    Leave();
  }
  void EndStream() override {
    ForwardingWriter::EndStream();
    Leave();
  }

 private:
  void Leave() {
    const std::shared_ptr<Flights> flights = std::exchange(flights_, nullptr);
    if (flights == nullptr) return;
    flights->Touch();
    --flights->count;
  }

  std::shared_ptr<Flights> flights_;
};

}  // namespace sluice
