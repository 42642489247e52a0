#include "models/process_step_channel.h"

#include <fmt/format.h>

namespace sluice {
namespace {

// Of a message: no step is coming any more.
constexpr int64_t kClosed = -1;

class ProcessStepChannel final : public StepChannel {
 public:
  ProcessStepChannel(Communicator& group, const StepLimits& limits)
      : group_(group), limits_(limits) {
    if (group.rank() == 0) {
      encoder_ = std::make_unique<StepEncoder>(limits);
    } else {
      decoder_ = std::make_unique<StepDecoder>(limits);
    }
  }

  void Publish(const StepInput& input) override {
    const std::span<const std::byte> message = encoder_->Encode(input);
    auto bytes = static_cast<int64_t>(message.size());
    group_.Broadcast(&bytes, sizeof(bytes), 0, Patience::kStep);
    // Only read at the root.
    group_.Broadcast(const_cast<std::byte*>(message.data()), bytes, 0, Patience::kStep);
  }

  void Close() override {
    int64_t bytes = kClosed;
    group_.Broadcast(&bytes, sizeof(bytes), 0, Patience::kStep);
  }

  const StepInput* Receive() override {
    int64_t bytes = 0;
    group_.Broadcast(&bytes, sizeof(bytes), 0, Patience::kIdle);
    if (bytes == kClosed) return nullptr;
    if (bytes < 0 || bytes > limits_.max_bytes())
      return Refuse(fmt::format("a step's message of {} bytes", bytes));
    message_.resize(static_cast<size_t>(bytes));
    group_.Broadcast(message_.data(), bytes, 0, Patience::kStep);
    const auto input = decoder_->Decode(message_);
    if (!input) return Refuse(input.error().message);
    return *input;
  }

  // Every rank has a copy of the step.
  void Finish() override {}

 private:
  const StepInput* Refuse(const std::string& problem) {
    group_.Fail(problem);
    throw GroupError(group_.failure());
  }

  Communicator& group_;
  const StepLimits limits_;
  std::unique_ptr<StepEncoder> encoder_;
  std::unique_ptr<StepDecoder> decoder_;
  std::vector<std::byte> message_;
};

}  // namespace

std::unique_ptr<StepChannel> MakeProcessStepChannel(Communicator& group, const StepLimits& limits) {
  return std::make_unique<ProcessStepChannel>(group, limits);
}

}  // namespace sluice
