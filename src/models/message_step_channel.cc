#include "models/message_step_channel.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

// Values that are sent instead of a message's size. They mean, in this order: there are no more
// steps; finish the oldest step in flight; an order about a folder; a RankCall.
constexpr int64_t kClose = -1;
constexpr int64_t kFinish = -2;
constexpr int64_t kOrder = -3;
constexpr int64_t kCall = -4;
constexpr int64_t kLongestFolder = 4096;

struct FolderOrder {
  enum class Kind : int64_t { kFill, kStage };
  Kind kind = Kind::kFill;
  int64_t slot = 0;  // slot, for kFill
  StageOrder stage = StageOrder::kLoad;
  int64_t folder_bytes = 0;
};

// The result of an order: an error message, or "" and whether it is done.
struct OrderAnswer {
  ErrorCode code = ErrorCode::kInternal;
  bool is_done = true;
  std::array<char, 500> problem{};
};

class StepsByMessage final : public MessageStepChannel {
 public:
  StepsByMessage(Communicator& group, const StepLimits& limits, int steps_in_flight,
                 FillSlot fill_slot, TakeStageOrder take_stage_order)
      : group_(group.Split(0, group.size())),
        limits_(limits),
        steps_in_flight_(steps_in_flight),
        fill_slot_(std::move(fill_slot)),
        take_stage_order_(std::move(take_stage_order)) {
    if (group.rank() == 0) {
      encoder_ = std::make_unique<StepEncoder>(limits);
      sent_.resize(static_cast<size_t>(steps_in_flight) + 1);
    } else {
      decoder_ = std::make_unique<StepDecoder>(limits);
    }
  }

  void Publish(const StepInput& input) override {
    Sent& next = sent_[next_];
    next_ = (next_ + 1) % sent_.size();
    // Waits until all ranks have read the previous message in this buffer.
    for (int rank = 1; rank < group_->size(); ++rank)
      group_->AwaitPosted(rank, num_posted_ - next.num_posted);
    const std::span<const std::byte> message = encoder_->Encode(input);
    next.message.assign(message.begin(), message.end());
    next.bytes = static_cast<int64_t>(message.size());
    PostToAll(&next.bytes, sizeof(next.bytes));
    PostToAll(next.message.data(), next.bytes);
    next.num_posted = num_posted_;
  }

  // If only one step can be in flight, all ranks finish it without an order.
  void PublishFinish() override {
    if (!is_alone()) PostToAll(&kFinish, sizeof(kFinish));
  }

  void PublishCall(const RankCall& call) override {
    called_ = call;
    PostToAll(&kCall, sizeof(kCall));
    PostToAll(&called_, sizeof(called_));
    for (int rank = 1; rank < group_->size(); ++rank) group_->AwaitPosted(rank, 0);
  }

  void Close() override {
    PostToAll(&kClose, sizeof(kClose));
    for (int rank = 1; rank < group_->size(); ++rank) group_->AwaitPosted(rank, 0);
  }

  StepOrder Receive() override {
    int64_t bytes = 0;
    for (;;) {
      group_->Receive(&bytes, sizeof(bytes), 0, Patience::kIdle);
      if (bytes != kOrder) break;
      TakeOrder();
    }
    if (bytes == kClose) return {};
    if (bytes == kCall) return {.call = ReceiveCall()};
    if (bytes == kFinish) return {.finishes = true};
    if (bytes < 0 || bytes > limits_.max_bytes())
      Refuse(fmt::format("a step's message of {} bytes", bytes));
    message_.resize(static_cast<size_t>(bytes));
    group_->Receive(message_.data(), bytes, 0, Patience::kStep);
    const auto input = decoder_->Decode(message_);
    if (!input) Refuse(input.error().message);
    return {.input = *input, .finishes = is_alone()};
  }

  // Does nothing: every rank has a copy of the step.
  void EndReading() override {}
  // Does nothing: rank 0 receives the ranks' results by exchanges. If a rank fails, these exchanges
  // fail.
  void EndStep() override {}

  Status FillEverywhere(int slot, const std::string& folder) override {
    const Result<bool> filled =
        Order({.kind = FolderOrder::Kind::kFill, .slot = slot}, "an adapter", folder);
    return filled ? Status() : tl::unexpected(filled.error());
  }
  Result<bool> StageEverywhere(StageOrder order, const std::string& folder) override {
    return Order({.kind = FolderOrder::Kind::kStage, .stage = order}, "weights", folder);
  }

 private:
  // A message posted to all ranks.
  struct Sent {
    int64_t bytes = 0;
    std::vector<std::byte> message;
    int64_t num_posted = 0;  // number of messages posted to each rank, including this one
  };

  // Called at rank 0: sends the order and receives the answers.
  Result<bool> Order(FolderOrder order, const char* what, const std::string& folder) {
    order.folder_bytes = static_cast<int64_t>(folder.size());
    if (order.folder_bytes > kLongestFolder) {
      return sluice::Fail(ErrorCode::kInvalidArgument,
                          fmt::format("the folder of {} has a name of {} bytes; expected at most "
                                      "{}",
                                      what, order.folder_bytes, kLongestFolder));
    }
    PostToAll(&kOrder, sizeof(kOrder));
    PostToAll(&order, sizeof(order));
    PostToAll(folder.data(), order.folder_bytes);
    Result<bool> all = true;
    for (int rank = 1; rank < group_->size(); ++rank) {
      OrderAnswer answer;
      group_->Receive(&answer, sizeof(answer), rank, Patience::kStep);
      group_->AwaitPosted(rank, 0);
      if (!all) continue;
      if (answer.problem.front() != '\0') {
        all = sluice::Fail(answer.code, fmt::format("rank {}: {}", rank, answer.problem.data()));
      } else if (!answer.is_done) {
        all = false;
      }
    }
    return all;
  }

  // Called at ranks other than 0: executes an order of rank 0.
  void TakeOrder() {
    FolderOrder order;
    group_->Receive(&order, sizeof(order), 0, Patience::kStep);
    const bool fills = order.kind == FolderOrder::Kind::kFill;
    if (order.folder_bytes < 0 || order.folder_bytes > kLongestFolder ||
        (fills && (order.slot < 0 || order.slot >= limits_.num_adapters))) {
      Refuse(fmt::format("an order to fill slot {} of adapters", order.slot));
    }
    std::string folder(static_cast<size_t>(order.folder_bytes), '\0');
    group_->Receive(folder.data(), order.folder_bytes, 0, Patience::kStep);
    const Result<bool> done =
        fills ? Fill(static_cast<int>(order.slot), folder) : take_stage_order_(order.stage, folder);
    OrderAnswer answer;
    if (done) {
      answer.is_done = *done;
    } else {
      answer.code = done.error().code;
      // Rank 0 has found the folder, so its absence here is a fault of this rank.
      if (answer.code == ErrorCode::kNotFound) answer.code = ErrorCode::kInvalidArgument;
      done.error().message.copy(answer.problem.data(), answer.problem.size() - 1);
    }
    group_->Send(&answer, sizeof(answer), 0);
  }

  Result<bool> Fill(int slot, const std::string& folder) {
    RETURN_IF_ERROR(fill_slot_(slot, folder));
    return true;
  }

  RankCall ReceiveCall() {
    RankCall call;
    group_->Receive(&call, sizeof(call), 0, Patience::kStep);
    const bool is_block = call.piece == CachePiece::kBlock;
    const int64_t places = is_block ? limits_.num_blocks : limits_.num_states;
    const bool moves = call.kind == RankCall::Kind::kRead || call.kind == RankCall::Kind::kWrite;
    const bool is_known = moves || call.kind == RankCall::Kind::kSwitch;
    if (!is_known || (!is_block && call.piece != CachePiece::kState) ||
        (moves && (call.place < 0 || call.place >= places))) {
      Refuse(fmt::format("a call about piece {} of {}", call.place, places));
    }
    return call;
  }

  bool is_alone() const { return steps_in_flight_ == 1; }

  void PostToAll(const void* data, int64_t bytes) {
    for (int rank = 1; rank < group_->size(); ++rank) group_->Post(data, bytes, rank);
    ++num_posted_;
  }

  [[noreturn]] void Refuse(const std::string& problem) {
    group_->Fail(problem);
    throw GroupError(group_->failure());
  }

  const std::unique_ptr<Communicator> group_;
  const StepLimits limits_;
  const int steps_in_flight_;
  const FillSlot fill_slot_;
  const TakeStageOrder take_stage_order_;
  // Members that are used at rank 0.
  std::unique_ptr<StepEncoder> encoder_;
  std::vector<Sent> sent_;  // a ring of reused entries
  size_t next_ = 0;
  RankCall called_;
  int64_t num_posted_ = 0;
  // Members that are used at the other ranks.
  std::unique_ptr<StepDecoder> decoder_;
  std::vector<std::byte> message_;
};

}  // namespace

std::unique_ptr<MessageStepChannel> MakeMessageStepChannel(Communicator& group,
                                                           const StepLimits& limits,
                                                           int steps_in_flight, FillSlot fill_slot,
                                                           TakeStageOrder take_stage_order) {
  return std::make_unique<StepsByMessage>(group, limits, steps_in_flight, std::move(fill_slot),
                                          std::move(take_stage_order));
}

}  // namespace sluice
