#include "events/event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>

#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"

namespace sluice {
namespace {

// Maximum size of received frames: a subscription's topic, or a batch number.
constexpr int64_t kMostFrameBytes = 4096;
constexpr std::chrono::seconds kTimeToEnd(1);

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::array<char, 8> NumberFrame(uint64_t number) {
  std::array<char, 8> bytes;
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (56 - 8 * i));
  return bytes;
}

template <typename Value>
void SetOption(void* socket, int option, Value value) {
  CHECK_EQ(zmq_setsockopt(socket, option, &value, sizeof(value)), 0);
}

// Whether to bind the address. Subscribers connect to local addresses. If the address has a host
// name, the publisher connects to the router that listens at it.
bool IsBound(std::string_view endpoint) {
  return endpoint.find('*') != std::string_view::npos ||
         endpoint.find("::") != std::string_view::npos || endpoint.starts_with("ipc://");
}

// False if the message cannot be sent now, or its receiver is unreachable.
bool SendFrame(void* socket, std::string_view bytes, bool has_more) {
  return zmq_send(socket, bytes.data(), bytes.size(),
                  ZMQ_DONTWAIT | (has_more ? ZMQ_SNDMORE : 0)) >= 0;
}

// Returns the frames of the next message; empty if there is no message. Frames after the fourth are
// dropped.
std::vector<std::string> ReceiveFrames(void* socket) {
  std::vector<std::string> frames;
  int has_more = 1;
  while (has_more != 0) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return {};
    }
    if (frames.size() < 4)
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    has_more = zmq_msg_more(&message);
    zmq_msg_close(&message);
  }
  return frames;
}

}  // namespace

void CacheEventPublisher::CloseContext::operator()(void* context) const {
  zmq_ctx_term(context);
}

void CacheEventPublisher::CloseSocket::operator()(void* socket) const {
  zmq_close(socket);
}

Result<std::unique_ptr<CacheEventPublisher>> CacheEventPublisher::Start(
    const CacheEventSettings& settings, int64_t rank) {
  std::unique_ptr<CacheEventPublisher> publisher(new CacheEventPublisher(settings, rank));
  RETURN_IF_ERROR(publisher->Open(rank));
  CacheEventPublisher* const self = publisher.get();
  self->thread_ = StartThread("kv-events", [self] { self->Run(); });
  LOG_INFO("events", "cache events of engine {} at {}{}", rank, self->endpoint_,
           self->replay_endpoint_.empty() ? "" : ", replayed at " + self->replay_endpoint_);
  return publisher;
}

CacheEventPublisher::CacheEventPublisher(const CacheEventSettings& settings, int64_t rank)
    : settings_(settings), encoder_(rank, settings.hash_seed) {}

Status CacheEventPublisher::Open(int64_t rank) {
  ASSIGN_OR_RETURN(wake_, OwnFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd"));
  context_.reset(zmq_ctx_new());
  if (context_ == nullptr) return Fail(ErrorCode::kResourceExhausted, "ZeroMQ has no memory");
  RETURN_IF_ERROR(
      OpenSocket(publish_, ZMQ_PUB, EndpointOfRank(settings_.endpoint, rank), endpoint_));
  if (settings_.replay_endpoint.empty()) return {};
  return OpenSocket(replay_, ZMQ_ROUTER, EndpointOfRank(settings_.replay_endpoint, rank),
                    replay_endpoint_);
}

Status CacheEventPublisher::OpenSocket(Socket& socket, int type, const std::string& address,
                                       std::string& endpoint) {
  socket.reset(zmq_socket(context_.get(), type));
  if (socket == nullptr) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("--kv-events-config: a socket: {}", zmq_strerror(zmq_errno())));
  }
  const bool is_router = type == ZMQ_ROUTER;
  // A replay's response, all kept batches and the final message, must fit.
  SetOption(socket.get(), ZMQ_SNDHWM,
            static_cast<int>(is_router ? settings_.buffer_steps + 1 : settings_.hwm));
  SetOption(socket.get(), ZMQ_MAXMSGSIZE, kMostFrameBytes);
  SetOption(socket.get(), ZMQ_LINGER, 0);
  if (address.find('[') != std::string::npos) SetOption(socket.get(), ZMQ_IPV6, 1);
  const bool is_bound = is_router || IsBound(address);
  if ((is_bound ? zmq_bind : zmq_connect)(socket.get(), address.c_str()) != 0) {
    const int error = zmq_errno();
    return Fail(error == EADDRINUSE ? ErrorCode::kAddressInUse : ErrorCode::kInvalidArgument,
                fmt::format("--kv-events-config: cannot {} {}: {}; choose another {}",
                            is_bound ? "listen at" : "connect to", address, zmq_strerror(error),
                            is_router ? "replay_endpoint" : "endpoint"),
                "kv-events-config");
  }
  std::array<char, 512> last;
  size_t size = last.size();
  endpoint = address;
  if (is_bound && zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, last.data(), &size) == 0)
    endpoint = last.data();
  return {};
}

CacheEventPublisher::~CacheEventPublisher() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void CacheEventPublisher::OnStart(int64_t num_blocks, int block_size,
                                  std::span<const AttentionSpan> groups) {
  batch_ = {};
  batch_.shape.push_back({num_blocks, block_size, {groups.begin(), groups.end()}});
  is_lost_ = false;
  if (std::exchange(is_started_, true)) OnCleared();
}

void CacheEventPublisher::OnStored(int64_t group, BlockId anchor, BlockId parent,
                                   std::span<const int32_t> tokens, std::string_view salt) {
  AddBlock({.kind = CacheEvent::Kind::kStored,
            .group = static_cast<int32_t>(group),
            .anchor = anchor,
            .parent = parent},
           tokens, salt);
}

void CacheEventPublisher::OnTierName(const TierName& name, int64_t group, BlockId anchor,
                                     BlockId parent, std::span<const int32_t> tokens,
                                     std::string_view salt) {
  AddBlock({.kind = CacheEvent::Kind::kTierName,
            .group = static_cast<int32_t>(group),
            .anchor = anchor,
            .parent = parent,
            .tier_change = batch_.tier_changes.size()},
           tokens, salt);
  batch_.tier_changes.push_back({.name = name});
}

void CacheEventPublisher::OnTierChange(const TierChange& change) {
  batch_.events.push_back(
      {.kind = CacheEvent::Kind::kTier, .tier_change = batch_.tier_changes.size()});
  batch_.tier_changes.push_back(change);
}

void CacheEventPublisher::AddBlock(CacheEvent event, std::span<const int32_t> tokens,
                                   std::string_view salt) {
  event.first_token = batch_.tokens.size();
  batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
  // Later blocks inherit from their parents.
  if (event.parent == kNoBlock && !salt.empty()) {
    if (batch_.salts.empty() || batch_.salts.back() != salt) batch_.salts.emplace_back(salt);
    event.salt = static_cast<int32_t>(batch_.salts.size()) - 1;
  }
  batch_.events.push_back(event);
}

void CacheEventPublisher::OnRemoved(int64_t group, BlockId anchor) {
  batch_.events.push_back(
      {.kind = CacheEvent::Kind::kRemoved, .group = static_cast<int32_t>(group), .anchor = anchor});
}

void CacheEventPublisher::OnCleared() {
  batch_.events.clear();
  batch_.tokens.clear();
  batch_.salts.clear();
  batch_.tier_changes.clear();
  batch_.events.push_back({.kind = CacheEvent::Kind::kCleared});
}

bool CacheEventPublisher::wants_everything() const {
  if (!is_lost_) return false;
  const MutexLock lock(mutex_);
  return queue_.size() < static_cast<size_t>(settings_.max_queue_size);
}

void CacheEventPublisher::EndBatch() {
  if (batch_.events.empty()) return;
  const bool is_whole = batch_.events.front().kind == CacheEvent::Kind::kCleared;
  bool is_queued = false;
  {
    const MutexLock lock(mutex_);
    // After a dropped batch, the next one must contain the whole cache state.
    if ((!is_lost_ || is_whole) && queue_.size() < static_cast<size_t>(settings_.max_queue_size)) {
      batch_.unix_seconds = SecondsSince1970();
      queue_.push_back(std::move(batch_));
      is_queued = true;
    }
  }
  std::vector<CacheShape> shape;
  if (!is_queued) {
    ++num_dropped_;
    shape = std::move(batch_.shape);
  }
  is_lost_ = !is_queued;
  batch_ = {};
  batch_.shape = std::move(shape);
  if (is_queued) Wake();
}

CacheEventCounts CacheEventPublisher::counts() const {
  return {num_published_.load(), num_dropped_.load(), num_missed_.load()};
}

void CacheEventPublisher::Wake() {
  const uint64_t one = 1;
  // Fails only if a wake-up of the thread is already pending.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void CacheEventPublisher::Run() {
  std::array<zmq_pollitem_t, 2> items = {
      {{nullptr, wake_.get(), ZMQ_POLLIN, 0}, {replay_.get(), 0, ZMQ_POLLIN, 0}}};
  auto end = std::chrono::steady_clock::time_point::max();
  while (true) {
    zmq_poll(items.data(), replay_ == nullptr ? 1 : 2, -1);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
    while (std::chrono::steady_clock::now() < end) {
      CacheEventBatch batch;
      {
        const MutexLock lock(mutex_);
        if (stopping_ && end == std::chrono::steady_clock::time_point::max())
          end = std::chrono::steady_clock::now() + kTimeToEnd;
        if (queue_.empty()) break;
        batch = std::move(queue_.front());
        queue_.pop_front();
      }
      RunGuarded("events", "to publish cache events", [&] { Publish(std::move(batch)); });
    }
    if (end != std::chrono::steady_clock::time_point::max()) return;
    if (replay_ != nullptr)
      RunGuarded("events", "to replay cache events", [this] { AnswerReplay(); });
  }
}

void CacheEventPublisher::Publish(CacheEventBatch batch) {
  std::string payload = encoder_.Encode(batch);
  const uint64_t number = next_number_++;
  Send(number, payload);
  ++num_published_;
  if (replay_ == nullptr) return;
  kept_bytes_ += payload.size();
  kept_.push_back({number, std::move(payload)});
  while (!kept_.empty() && (kept_.size() > static_cast<size_t>(settings_.buffer_steps) ||
                            kept_bytes_ > kMostKeptBytes)) {
    kept_bytes_ -= kept_.front().payload.size();
    kept_.pop_front();
  }
}

void CacheEventPublisher::Send(uint64_t number, const std::string& payload) {
  // With NODROP, nothing is sent if any subscriber's queue is full. In that case the message is
  // sent again without NODROP, to the subscribers whose queues have room.
  SetOption(publish_.get(), ZMQ_XPUB_NODROP, 1);
  const bool all = SendFrame(publish_.get(), settings_.topic, true);
  if (!all) ++num_missed_;
  SetOption(publish_.get(), ZMQ_XPUB_NODROP, 0);
  if (!all) SendFrame(publish_.get(), settings_.topic, true);
  const std::array<char, 8> bytes = NumberFrame(number);
  SendFrame(publish_.get(), {bytes.data(), bytes.size()}, true);
  SendFrame(publish_.get(), payload, false);
}

void CacheEventPublisher::AnswerReplay() {
  // A limited number at a time, so that new batches are not delayed.
  for (int i = 0; i < 16; ++i) {
    const std::vector<std::string> frames = ReceiveFrames(replay_.get());
    if (frames.empty()) return;
    if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) continue;
    uint64_t first = 0;
    for (const char byte : frames[2]) first = first << 8 | static_cast<uint8_t>(byte);
    Replay(frames[0], first);
  }
}

void CacheEventPublisher::Replay(const std::string& identity, uint64_t first) {
  void* const socket = replay_.get();
  const auto send = [&](std::string_view topic, uint64_t number, std::string_view payload) {
    const std::array<char, 8> bytes = NumberFrame(number);
    return SendFrame(socket, identity, true) && SendFrame(socket, "", true) &&
           SendFrame(socket, topic, true) && SendFrame(socket, {bytes.data(), 8}, true) &&
           SendFrame(socket, payload, false);
  };
  for (const Kept& kept : kept_) {
    if (kept.number >= first && !send(settings_.topic, kept.number, kept.payload)) return;
  }
  send("", ~uint64_t{0}, "");
}

}  // namespace sluice
