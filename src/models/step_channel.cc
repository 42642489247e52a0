#include "models/step_channel.h"

namespace sluice {
namespace {

class LocalStepChannel final : public StepChannel {
 public:
  explicit LocalStepChannel(Communicator& group) : group_(group) {}

  void Publish(const StepInput& input) override { Pass(&input); }
  void Close() override { Pass(nullptr); }
  const StepInput* Receive() override { return Pass(nullptr); }
  // Until all are done with the step's arrays, which are rank 0's.
  void Finish() override { group_.Broadcast(nullptr, 0, 0, Patience::kStep); }

 private:
  struct Address {
    const StepInput* input = nullptr;
  };

  const StepInput* Pass(const StepInput* input) {
    Address address{input};
    group_.Broadcast(&address, sizeof(Address), 0, Patience::kIdle);
    return address.input;
  }

  Communicator& group_;
};

}  // namespace

std::unique_ptr<StepChannel> MakeLocalStepChannel(Communicator& group) {
  return std::make_unique<LocalStepChannel>(group);
}

}  // namespace sluice
