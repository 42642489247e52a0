#include "parallel/rank_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/boot_identity.h"
#include "base/firewall.h"
#include "base/log.h"
#include "base/mutex.h"
#include "parallel/arrivals.h"
#include "parallel/socket_parts.h"

namespace sluice {
namespace {

using WatchClock = std::chrono::steady_clock;

// A frame is one letter. After kReason come the reason's length (2 bytes, little-endian) and text.
constexpr char kBeat = 'b';
constexpr char kReason = 'r';
constexpr char kGoodbye = 'g';
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kAllAddresses = "0.0.0.0";
constexpr size_t kMostReasonBytes = 1000;
constexpr size_t kMostLineBytes = 1000;
// After a failure, the other ranks wait this long for rank 0 to report it to its clients.
constexpr std::chrono::seconds kTimeToEnd(10);

// The facts about itself that every rank reports before there are connections.
struct Card {
  std::array<char, 128> host{};
  std::array<char, 128> machine{};  // boot id and network namespace
  int32_t process = 0;
};

// How to connect to rank 0.
struct Invitation {
  static constexpr size_t kMostAddresses = 16;
  std::array<std::array<char, 16>, kMostAddresses> addresses{};
  std::array<std::byte, 16> token{};
  uint16_t port = 0;
};

// First message of a rank.
struct Greeting {
  std::array<std::byte, 16> token{};
  int32_t rank = 0;
};

template <size_t n>
void SetText(std::array<char, n>& field, std::string_view text) {
  std::memcpy(field.data(), text.data(), std::min(text.size(), n - 1));
}

template <size_t n>
std::string TextOf(const std::array<char, n>& field) {
  return {field.data(), strnlen(field.data(), n)};
}

Card OwnCard() {
  Card card;
  char host[128] = {};
  gethostname(host, sizeof(host) - 1);
  SetText(card.host, host);
  std::error_code failed;
  const std::string boot =
      BootIdentity() + std::filesystem::read_symlink("/proc/self/ns/net", failed).string();
  SetText(card.machine, boot);
  card.process = getpid();
  return card;
}

struct Connection {
  int rank = 0;
  OwnedFd socket;
  WatchClock::time_point heard;
  std::string received;  // an incomplete frame
  std::string unsent;  // limited size: one reason, one goodbye, and heartbeats while there is room
  bool said_goodbye = false;
  bool is_lost = false;
};

class RankWatchThread final : public RankWatch {
 public:
  RankWatchThread(int rank, RankWatchOptions options, std::vector<std::string> names, int here,
                  std::vector<Connection> connections, OwnedFd wake)
      : rank_(rank),
        options_(std::move(options)),
        names_(std::move(names)),
        ranks_here_(here),
        connections_(std::move(connections)),
        wake_(std::move(wake)),
        control_(options_.control) {
    if (options_.parent == 0) options_.parent = getppid();
    thread_ = StartThread("rank-watch", [this] { Run(); });
  }

  ~RankWatchThread() override {
    stopping_ = true;
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }

  void Announce(const std::string& reason) override {
    {
      const MutexLock lock(mutex_);
      if (!announced_.empty()) return;
      announced_ = reason.substr(0, kMostReasonBytes);
    }
    eventfd_write(wake_.get(), 1);
  }

  void SayGoodbye() override {
    leaving_ = true;
    eventfd_write(wake_.get(), 1);
    // Waits until the goodbye has been written, at most 1 s.
    for (int i = 0; i < 200 && !said_goodbye_; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  const std::string& name(int rank) const override { return names_[static_cast<size_t>(rank)]; }
  int ranks_here() const override { return ranks_here_; }

 private:
  void Run() {
    WatchClock::time_point next_beat = WatchClock::now();
    WatchClock::time_point last_round = next_beat;
    for (Connection& connection : connections_) connection.heard = next_beat;
    while (!stopping_)
      RunGuarded("serve", "to watch the ranks", [&] { WatchOnce(next_beat, last_round); });
  }

  void WatchOnce(WatchClock::time_point& next_beat, WatchClock::time_point& last_round) {
    Poll(next_beat);
    const auto now = WatchClock::now();
    // If this machine itself was suspended, it caused the silence, so the timeouts of all peers are
    // restarted.
    if (now - last_round > options_.beat * 4) {
      for (Connection& connection : connections_) connection.heard = now;
    }
    last_round = now;
    for (Connection& connection : connections_) Receive(connection, now);
    ReadControl();
    TellReason(now);
    TellGoodbye();
    if (now >= next_beat) {
      for (Connection& connection : connections_) {
        if (connection.unsent.size() < kMostReasonBytes) connection.unsent += kBeat;
      }
      next_beat = now + options_.beat;
      CheckParent();
    }
    for (Connection& connection : connections_) {
      Flush(connection);
      CheckSilence(connection, now);
    }
    EndAfterFailure(now);
  }

  void Poll(WatchClock::time_point next_beat) {
    std::vector<pollfd>& polled = polled_;
    polled.clear();
    polled.push_back({wake_.get(), POLLIN, 0});
    if (control_ >= 0) polled.push_back({control_, POLLIN, 0});
    for (const Connection& connection : connections_) {
      if (connection.is_lost) continue;
      const short events = connection.unsent.empty() ? POLLIN : POLLIN | POLLOUT;
      polled.push_back({connection.socket.get(), events, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_beat - WatchClock::now());
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
    eventfd_t ignored = 0;
    eventfd_read(wake_.get(), &ignored);
  }

  void Lose(const std::string& reason) {
    if (std::exchange(has_lost_, true) || leaving_) return;
    options_.on_loss(reason);
  }

  void LoseConnection(Connection& connection, const char* how) {
    connection.is_lost = true;
    if (!connection.said_goodbye) Lose(fmt::format("{} {}", name(connection.rank), how));
  }

  void Receive(Connection& connection, WatchClock::time_point now) {
    if (connection.is_lost) return;
    std::array<char, 4096> bytes{};
    while (true) {
      const ssize_t count = recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
      if (count > 0) {
        connection.heard = now;
        connection.received.append(bytes.data(), static_cast<size_t>(count));
        if (!ReadFrames(connection)) return;
        continue;
      }
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      return LoseConnection(connection,
                            "has ended without a message: it crashed or was killed; its last log "
                            "lines or the kernel's log may contain the reason");
    }
  }

  // Returns whether the peer follows the protocol.
  bool ReadFrames(Connection& connection) {
    std::string& text = connection.received;
    size_t read = 0;
    while (read < text.size()) {
      const char letter = text[read];
      if (letter == kGoodbye) connection.said_goodbye = true;
      if (letter == kBeat || letter == kGoodbye) {
        ++read;
        continue;
      }
      if (letter != kReason) {
        LoseConnection(connection, "sends what no rank sends");
        return false;
      }
      if (text.size() < read + 3) break;
      const size_t length = static_cast<unsigned char>(text[read + 1]) +
                            (static_cast<size_t>(static_cast<unsigned char>(text[read + 2])) << 8);
      if (length > kMostReasonBytes) {
        LoseConnection(connection, "sends a reason that is too long");
        return false;
      }
      if (text.size() < read + 3 + length) break;
      Lose(text.substr(read + 3, length));
      read += 3 + length;
    }
    text.erase(0, read);
    return true;
  }

  static void Flush(Connection& connection) {
    if (connection.is_lost || connection.unsent.empty()) return;
    const ssize_t count = send(connection.socket.get(), connection.unsent.data(),
                               connection.unsent.size(), MSG_NOSIGNAL);
    // Receive detects a broken connection.
    if (count > 0) connection.unsent.erase(0, static_cast<size_t>(count));
  }

  void TellReason(WatchClock::time_point now) {
    std::string reason;
    {
      const MutexLock lock(mutex_);
      reason = announced_;
    }
    if (reason.empty() || failed_at_) return;
    failed_at_ = now;
    has_lost_ = true;
    std::string frame{kReason, static_cast<char>(reason.size() & 0xFF),
                      static_cast<char>(reason.size() >> 8)};
    frame += reason;
    for (Connection& connection : connections_) connection.unsent += frame;
  }

  void TellGoodbye() {
    if (!leaving_ || said_goodbye_) return;
    for (Connection& connection : connections_) {
      connection.unsent += kGoodbye;
      Flush(connection);
    }
    said_goodbye_ = true;
  }

  void CheckSilence(Connection& connection, WatchClock::time_point now) {
    if (connection.is_lost || now - connection.heard < options_.silence) return;
    connection.is_lost = true;
    if (connection.said_goodbye) return;
    Lose(fmt::format(
        "{} was not heard of for {:.1f} s: it is stopped, or its machine cannot be "
        "reached",
        name(connection.rank), std::chrono::duration<double>(options_.silence).count()));
  }

  void CheckParent() {
    if (options_.parent > 1 && getppid() != options_.parent)
      Lose(fmt::format("{} (process {}) has ended, and rank {} with it", options_.parent_name,
                       options_.parent, rank_));
  }

  void ReadControl() {
    if (control_ < 0) return;
    pollfd polled{control_, POLLIN, 0};
    if (poll(&polled, 1, 0) <= 0) return;
    std::array<char, 256> bytes{};
    const ssize_t count = read(control_, bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) {
      control_ = -1;
      return Lose(fmt::format("{} has ended, and its ranks with it", options_.parent_name));
    }
    line_.append(bytes.data(), static_cast<size_t>(count));
    for (size_t end = line_.find('\n'); end != std::string::npos; end = line_.find('\n')) {
      if (options_.on_line) options_.on_line(std::string_view(line_).substr(0, end));
      line_.erase(0, end + 1);
    }
    if (line_.size() > kMostLineBytes) line_.clear();
  }

  // Ranks other than 0 stay until rank 0 has reported to its clients, because a launcher ends all
  // ranks when one rank ends.
  void EndAfterFailure(WatchClock::time_point now) {
    if (rank_ == 0 || !failed_at_) return;
    if (connections_[0].is_lost || now - *failed_at_ > kTimeToEnd) options_.on_end();
  }

  const int rank_;
  RankWatchOptions options_;
  const std::vector<std::string> names_;
  const int ranks_here_;
  std::vector<Connection> connections_;  // on rank 0: to all other ranks; on other ranks: to rank 0
  const OwnedFd wake_;
  int control_;
  std::string line_;
  std::vector<pollfd> polled_;
  bool has_lost_ = false;
  std::optional<WatchClock::time_point> failed_at_;

  Mutex mutex_;
  std::string announced_ GUARDED_BY(mutex_);
  std::atomic<bool> leaving_{false};
  std::atomic<bool> said_goodbye_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last member, because it uses all others
};

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> WritableBytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

std::vector<Card> ExchangeCards(Communicator& all) {
  ThreadPool pool(1);
  std::vector<Card> cards(static_cast<size_t>(all.size()));
  const std::vector<int64_t> widths(cards.size(), sizeof(Card));
  const Card own = OwnCard();
  all.Gather(pool, widths, 1, &own, cards.data());
  return cards;
}

Result<std::vector<Connection>> AcceptRanks(const Listener& listener, const Invitation& invitation,
                                            int size, const std::vector<std::string>& names,
                                            SocketTime deadline) {
  std::vector<Connection> connections(static_cast<size_t>(size) - 1);
  Arrivals arrivals(listener, sizeof(Greeting));
  for (int missing = size - 1; missing > 0;) {
    auto arrival = arrivals.Next(deadline);
    if (!arrival) {
      std::vector<std::string> absent;
      for (size_t i = 0; i < connections.size(); ++i) {
        if (!connections[i].socket) absent.push_back(names[i + 1]);
      }
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("{} did not connect to port {} of rank 0's machine ({}): allow "
                              "connections between the machines of the group at all ports",
                              fmt::join(absent, ", "), listener.port, arrival.error().message));
    }
    Greeting greeting;
    std::memcpy(&greeting, arrival->received.data(), sizeof(greeting));
    // Ignores an unrelated connection, such as a port scanner's.
    if (greeting.token != invitation.token || greeting.rank < 1 || greeting.rank >= size) continue;
    Connection& connection = connections[static_cast<size_t>(greeting.rank) - 1];
    if (connection.socket) continue;
    connection.rank = greeting.rank;
    connection.socket = std::move(arrival->socket);
    --missing;
  }
  return connections;
}

Result<std::vector<Connection>> ConnectToFirst(const Invitation& invitation, int rank,
                                               SocketTime deadline) {
  std::string problems;
  for (const auto& address : invitation.addresses) {
    if (address[0] == '\0') break;
    auto socket = ConnectBy(TextOf(address), invitation.port,
                            std::min(deadline, WatchClock::now() + std::chrono::seconds(2)));
    if (!socket) {
      problems += (problems.empty() ? "" : "; ") + socket.error().message;
      continue;
    }
    const Greeting greeting{invitation.token, rank};
    RETURN_IF_ERROR(SendAllBy(*socket, BytesOf(greeting), deadline));
    std::vector<Connection> connections(1);
    connections[0].socket = *std::move(socket);
    return connections;
  }
  return Fail(ErrorCode::kUnavailable,
              fmt::format("rank {} cannot connect to port {} of rank 0 ({}): allow connections "
                          "between the machines of the group at all ports",
                          rank, invitation.port, problems));
}

}  // namespace

Result<std::unique_ptr<RankWatch>> RankWatch::Start(Communicator& all, RankWatchOptions options) {
  const std::vector<Card> cards = ExchangeCards(all);
  const Card& own = cards[static_cast<size_t>(all.rank())];
  std::vector<std::string> names;
  bool one_machine = true;
  int here = 0;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    names.push_back(fmt::format("rank {} (process {} on {})", rank, cards[rank].process,
                                TextOf(cards[rank].host)));
    one_machine &= cards[rank].machine == cards[0].machine;
    here += cards[rank].machine == own.machine ? 1 : 0;
  }
  ASSIGN_OR_RETURN(OwnedFd wake, OwnFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
  const SocketTime deadline = WatchClock::now() + options.connect;
  Invitation invitation;
  std::vector<Connection> connections;
  if (all.rank() == 0) {
    const std::string address = one_machine               ? kLoopback
                                : options.address.empty() ? kAllAddresses
                                                          : options.address;
    ASSIGN_OR_RETURN(const Listener listener, ListenAt(address, 0));
    LOG_INFO("serve", "waiting at {}:{} for {} other ranks", address, listener.port,
             all.size() - 1);
    invitation.port = listener.port;
    if (getrandom(invitation.token.data(), invitation.token.size(), 0) !=
        static_cast<ssize_t>(invitation.token.size())) {
      return Fail(ErrorCode::kInternal, "the system gives no random numbers");
    }
    const std::vector<std::string> addresses =
        address == kAllAddresses ? OwnAddresses() : std::vector<std::string>{address};
    for (size_t i = 0; i < std::min(addresses.size(), Invitation::kMostAddresses); ++i)
      SetText(invitation.addresses[i], addresses[i]);
    all.Broadcast(&invitation, sizeof(invitation), 0, Patience::kStep);
    ASSIGN_OR_RETURN(connections, AcceptRanks(listener, invitation, all.size(), names, deadline));
  } else {
    all.Broadcast(&invitation, sizeof(invitation), 0, Patience::kStep);
    ASSIGN_OR_RETURN(connections, ConnectToFirst(invitation, all.rank(), deadline));
  }
  return std::make_unique<RankWatchThread>(all.rank(), std::move(options), std::move(names), here,
                                           std::move(connections), std::move(wake));
}

}  // namespace sluice
