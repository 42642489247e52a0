#include "models/step_channel.h"

namespace sluice {
namespace {

class LocalStepChannel final : public StepChannel {
 public:
  LocalStepChannel(Communicator& group, bool ends_apart) : group_(group), ends_apart_(ends_apart) {}

  void Publish(const StepInput& input) override { Pass({.input = &input}); }
  void PublishCall(const RankCall& call) override { Pass({.call = call}); }
  // Does nothing: the other ranks finish the step without an order.
  void PublishFinish() override {}
  void Close() override { Pass({}); }
  StepOrder Receive() override {
    const Passed passed = Pass({});
    return {.input = passed.input, .finishes = passed.input != nullptr, .call = passed.call};
  }
  // Waits until all ranks have read the step's arrays, which belong to rank 0.
  void EndReading() override { group_.Broadcast(nullptr, 0, 0, Patience::kStep); }
  void EndStep() override {
    if (ends_apart_) group_.Broadcast(nullptr, 0, 0, Patience::kStep);
  }

 private:
  struct Passed {
    const StepInput* input = nullptr;
    RankCall call = {};
  };

  Passed Pass(Passed passed) {
    group_.Broadcast(&passed, sizeof(passed), 0, Patience::kIdle);
    return passed;
  }

  Communicator& group_;
  const bool ends_apart_;
};

}  // namespace

std::unique_ptr<StepChannel> MakeLocalStepChannel(Communicator& group, bool ends_apart) {
  return std::make_unique<LocalStepChannel>(group, ends_apart);
}

}  // namespace sluice
