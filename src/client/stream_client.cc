#include "client/stream_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/firewall.h"
#include "client/event_stream.h"
#include "client/response_parser.h"

namespace sluice {
namespace {

constexpr size_t kMaxBodyBytes = size_t{1} << 30;
constexpr size_t kReadBytes = 64 << 10;
// Maximum number of idle connections; further ones are closed.
constexpr size_t kMaxIdle = 64;
// The maximum time that a connection to a unix socket waits for room in the listener's queue. epoll
// does not report when there is room.
constexpr time_t kSocketQueueSeconds = 5;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

}  // namespace

double MonotonicSeconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class StreamClient::Loop {
 public:
  explicit Loop(Options options) : options_(std::move(options)), buffer_(kReadBytes) {
    const bool v6 = options_.url.host.find(':') != std::string::npos;
    host_ = fmt::format("{}:{}", v6 ? "[" + options_.url.host + "]" : options_.url.host,
                        options_.url.port);
    if (!options_.url.socket.empty()) host_ = options_.url.host;
  }
  ~Loop() {
    for (const auto& connection : connections_) {
      connection->tls.reset();
      close(connection->fd);
    }
    if (timer_ >= 0) close(timer_);
    if (epoll_ >= 0) close(epoll_);
  }

  Status Open() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (epoll_ < 0 || timer_ < 0) {
      return Fail(
          ErrorCode::kUnavailable,
          fmt::format("cannot wait for sockets: {}; raise `ulimit -n`", std::strerror(errno)));
    }
    RETURN_IF_ERROR(CatchToResult([this]() -> Status {
      Watch(timer_, EPOLLIN, &timer_);
      idle_.reserve(kMaxIdle + 1);
      return {};
    }));
    if (options_.url.tls && options_.tls == nullptr) {
      ASSIGN_OR_RETURN(options_.tls, ClientTls::Load({}));
    }
    return options_.url.socket.empty() ? FindHost() : TakeSocketFile();
  }

  Status TakeSocketFile() {
    sockaddr_un unix_address{};
    unix_address.sun_family = AF_UNIX;
    const std::string& file = options_.url.socket;
    if (file.size() >= sizeof(unix_address.sun_path)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the system does not allow so long a name for a socket: {}", file),
                  "url");
    }
    std::memcpy(unix_address.sun_path, file.data(), file.size());
    Address address;
    address.size = sizeof(unix_address);
    std::memcpy(&address.bytes, &unix_address, sizeof(unix_address));
    addresses_.push_back(address);
    return {};
  }

  Status FindHost() {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(options_.url.port);
    const int error = getaddrinfo(options_.url.host.c_str(), port.c_str(), &hints, &found);
    if (error != 0) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("cannot find host {}: {}", options_.url.host, gai_strerror(error)),
                  "url");
    }
    for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
      Address address;
      address.size = next->ai_addrlen;
      std::memcpy(&address.bytes, next->ai_addr, next->ai_addrlen);
      addresses_.push_back(address);
    }
    freeaddrinfo(found);
    return {};
  }

  void Send(std::string_view method, std::string_view path, std::string_view headers,
            std::optional<std::string_view> body, StreamHandler& handler) {
    Exchange exchange;
    exchange.handler = &handler;
    exchange.deadline = MonotonicSeconds() + options_.timeout_seconds;
    exchange.request = fmt::format(
        "{} {}{} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nConnection: {}\r\n{}", method,
        options_.url.path, path, host_, options_.keep_alive ? "keep-alive" : "close", headers);
    if (body) {
      exchange.request +=
          fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body->size());
    }
    exchange.request += "\r\n";
    if (body) exchange.request += *body;
    Start(std::move(exchange));
  }

  void Forward(std::string_view method, std::string_view path, std::string_view headers,
               std::string_view body, StreamHandler& handler) {
    Exchange exchange;
    exchange.handler = &handler;
    exchange.deadline = MonotonicSeconds() + options_.timeout_seconds;
    exchange.request = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nConnection: {}\r\n{}\r\n{}",
                                   method, options_.url.path, path, host_,
                                   options_.keep_alive ? "keep-alive" : "close", headers, body);
    Start(std::move(exchange));
  }

  void Cancel(const StreamHandler& handler) {
    const size_t failed =
        std::erase_if(failures_, [&](const auto& failure) { return failure.first == &handler; });
    num_running_ -= failed;
    Connection* connection = Find(handler);
    if (connection == nullptr) return;
    --num_running_;
    Close(*connection);
  }

  void Pause(const StreamHandler& handler, bool paused) const {
    Connection* connection = Find(handler);
    if (connection == nullptr || connection->paused == paused) return;
    connection->paused = paused;
    WatchAgain(*connection);
  }

  bool Poll(double until, int cancel_fd) {
    if (cancel_fd != watched_cancel_) {
      if (cancel_fd >= 0) Watch(cancel_fd, EPOLLIN, &watched_cancel_);
      watched_cancel_ = cancel_fd;
    }
    ReportFailures();
    const double start = MonotonicSeconds();
    if (start >= next_check_) {
      EndLateOnes(start);
      next_check_ = start + 1;
    }
    SetTimer(failures_.empty() ? std::min(until, next_check_) : start);
    epoll_event events[256];
    const int count = epoll_wait(epoll_, events, std::size(events), -1);
    bool go_on = true;
    for (int i = 0; i < count; ++i) {
      void* what = events[i].data.ptr;
      if (what == &timer_) {
        uint64_t times = 0;
        timer_until_ = 0;
        if (read(timer_, &times, sizeof(times)) < 0) continue;
      } else if (what == &watched_cancel_) {
        go_on = false;
      } else {
        Handle(*static_cast<Connection*>(what), events[i].events);
      }
    }
    ReportFailures();
    dead_.clear();
    return go_on;
  }

  size_t num_running() const { return num_running_; }

 private:
  struct Exchange {
    StreamHandler* handler = nullptr;
    std::string request;
    double deadline = 0;
  };
  struct Connection {
    int fd = -1;
    size_t address = 0;
    bool connected = false;
    bool reused = false;
    bool busy = false;
    bool waits_to_write = true;
    bool paused = false;
    bool has_told_head = false;
    Exchange exchange;
    size_t written = 0;
    std::unique_ptr<TlsLink> tls;  // null without TLS
    ResponseParser parser;
    EventStream events;
    std::string body;
  };

  void Start(Exchange exchange) {
    ++num_running_;
    while (!idle_.empty()) {
      Connection& connection = *idle_.back();
      idle_.pop_back();
      if (!IsQuiet(connection)) {
        Close(connection);
        continue;
      }
      connection.reused = true;
      Begin(connection, std::move(exchange));
      return;
    }
    Connect(std::move(exchange), preferred_);
  }

  // Returns whether an idle connection is still usable: the server has not closed it or sent
  // unrequested data.
  static bool IsQuiet(const Connection& connection) {
    char byte = 0;
    const ssize_t got = recv(connection.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  }

  // Throws std::system_error if the system refuses.
  void Watch(int fd, uint32_t events, void* what) const {
    epoll_event event{};
    event.events = events;
    event.data.ptr = what;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }

  void SetTimer(double until) {
    // Saves the system call if the timer is already set to this time.
    if (until == timer_until_) return;
    timer_until_ = until;
    const double wait = std::max(until - MonotonicSeconds(), 0.0);
    itimerspec spec{};
    spec.it_value.tv_sec = static_cast<time_t>(wait);
    spec.it_value.tv_nsec = static_cast<long>(1e9 * (wait - std::floor(wait)));
    if (spec.it_value.tv_sec == 0 && spec.it_value.tv_nsec == 0) spec.it_value.tv_nsec = 1;
    CHECK(timerfd_settime(timer_, 0, &spec, nullptr) == 0, "timerfd_settime");
  }

  // Reports in the next Poll that an exchange failed without a connection. Post itself must not
  // call back.
  void FailLater(const Exchange& exchange, std::string error, std::string unreachable) {
    failures_.emplace_back(exchange.handler,
                           StreamEnd{0, std::move(error), "", std::move(unreachable)});
  }
  void ReportFailures() {
    // The handlers may begin other requests, and these may also fail.
    auto failures = std::exchange(failures_, {});
    for (auto& [handler, end] : failures) {
      --num_running_;
      TellEnd(*handler, MonotonicSeconds(), std::move(end));
    }
  }

  // If this throws, no descriptor leaks. The exchange then belongs to a connection or was dropped.
  void Connect(Exchange exchange, size_t address) {
    // Allocates memory first: nothing may throw between socket() and the new connection.
    auto made = std::make_unique<Connection>();
    connections_.reserve(Grown(connections_.size() + 1, connections_.capacity()));
    dead_.reserve(Grown(dead_.size() + connections_.size() + 1, dead_.capacity()));
    const Address& to = addresses_[address];
    const bool is_unix = to.bytes.ss_family == AF_UNIX;
    const int fd =
        socket(to.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | (is_unix ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0) {
      FailLater(exchange,
                fmt::format("cannot open a socket: {}; raise `ulimit -n`", std::strerror(errno)),
                "");
      return;
    }
    const int on = 1;
    const timeval patience{kSocketQueueSeconds, 0};
    if (is_unix) {
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    } else {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to.bytes), to.size) != 0 &&
        errno != EINPROGRESS) {
      const int reason = errno;
      close(fd);
      ConnectFailed(std::move(exchange), address, reason);
      return;
    }
    if (is_unix) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    connections_.push_back(std::move(made));
    Connection& connection = *connections_.back();
    connection.fd = fd;
    connection.address = address;
    connection.exchange = std::move(exchange);
    connection.busy = true;
    if (options_.url.tls)
      connection.tls = std::make_unique<TlsLink>(*options_.tls, options_.url.host, fd);
    Watch(fd, EPOLLIN | EPOLLOUT, &connection);
  }

  // The capacity of a vector that needs `size` elements: doubled if it is too small.
  static size_t Grown(size_t size, size_t capacity) {
    return size <= capacity ? capacity : 2 * size;
  }

  void ConnectFailed(Exchange exchange, size_t address, int reason) {
    if (address + 1 < addresses_.size() && address == preferred_) {
      preferred_ = address + 1;
    }
    if (address < preferred_) {
      Connect(std::move(exchange), preferred_);
      return;
    }
    const std::string place = options_.url.socket.empty() ? host_ : options_.url.socket;
    FailLater(exchange, fmt::format("Cannot connect to host {} [{}]", place, std::strerror(reason)),
              std::strerror(reason));
  }

  void Begin(Connection& connection, Exchange exchange) {
    connection.exchange = std::move(exchange);
    connection.busy = true;
    connection.written = 0;
    connection.parser = ResponseParser();
    connection.events = EventStream();
    connection.body.clear();
    connection.has_told_head = false;
    Write(connection);
  }

  Connection* Find(const StreamHandler& handler) const {
    for (const auto& connection : connections_) {
      if (connection->busy && connection->exchange.handler == &handler) return connection.get();
    }
    return nullptr;
  }

  void WatchAgain(Connection& connection) const {
    epoll_event event{};
    if (!connection.paused) event.events |= EPOLLIN;
    if (connection.waits_to_write) event.events |= EPOLLOUT;
    event.data.ptr = &connection;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
  }

  void WaitToWrite(Connection& connection, bool wait) const {
    if (connection.waits_to_write == wait) return;
    connection.waits_to_write = wait;
    WatchAgain(connection);
  }

  // Like send() and recv(), with or without TLS.
  static ssize_t SendSome(Connection& connection, const char* data, size_t size) {
    return connection.tls ? connection.tls->Send(data, size)
                          : send(connection.fd, data, size, MSG_NOSIGNAL);
  }
  static ssize_t ReceiveSome(Connection& connection, char* data, size_t size) {
    return connection.tls ? connection.tls->Receive(data, size)
                          : recv(connection.fd, data, size, 0);
  }

  // Continues the TLS handshake. Returns false until it is done, or if it closed the connection.
  bool ShakeHands(Connection& connection) {
    switch (connection.tls->Continue()) {
      case TlsLink::Handshake::kDone: return true;
      case TlsLink::Handshake::kWantsRead: WaitToWrite(connection, false); return false;
      case TlsLink::Handshake::kWantsWrite: WaitToWrite(connection, true); return false;
      case TlsLink::Handshake::kFailed: break;
    }
    const std::string problem = connection.tls->problem();
    const std::string error = fmt::format("Cannot connect to host {} [{}]", host_, problem);
    FailLater(connection.exchange, error, problem);
    Close(connection);
    return false;
  }

  // Sends more of the request. Returns false if the connection is closed.
  bool Write(Connection& connection) {
    const std::string& request = connection.exchange.request;
    while (connection.written < request.size()) {
      const ssize_t sent = SendSome(connection, request.data() + connection.written,
                                    request.size() - connection.written);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) {
        WaitToWrite(connection, true);
        return true;
      }
      if (sent < 0) {
        // If a write fails, the server may already have sent an answer that refuses the request.
        if (connection.reused && !connection.parser.started()) return Replace(connection);
        connection.written = request.size();
        break;
      }
      connection.written += static_cast<size_t>(sent);
    }
    WaitToWrite(connection, false);
    return true;
  }

  // Closes a connection. Its memory is kept until all events of the epoll batch are handled.
  void Close(Connection& connection) {
    connection.tls.reset();
    close(connection.fd);
    const auto place = std::find_if(connections_.begin(), connections_.end(),
                                    [&](const auto& c) { return c.get() == &connection; });
    connection.busy = false;
    connection.fd = -1;
    dead_.push_back(std::move(*place));
    *place = std::move(connections_.back());
    connections_.pop_back();
  }

  // Sends the request over a new connection, because the server has closed an idle one.
  bool Replace(Connection& connection) {
    Exchange exchange = std::move(connection.exchange);
    Close(connection);
    Connect(std::move(exchange), preferred_);
    return false;
  }

  // Keeps an idle connection for the next exchange.
  void Keep(Connection& connection) {
    connection.body = {};
    connection.exchange = {};
    if (connection.paused) {
      connection.paused = false;
      WatchAgain(connection);
    }
    idle_.push_back(&connection);
    if (idle_.size() <= kMaxIdle) return;
    Connection& oldest = *idle_.front();
    idle_.erase(idle_.begin());
    Close(oldest);
  }

  // `has_more`: bytes follow the answer. They belong to no request, and the next answer must not
  // begin with them.
  void End(Connection& connection, double now, std::string error, bool has_more = false) {
    StreamHandler* handler = connection.exchange.handler;
    StreamEnd end{connection.parser.status(), std::move(error), std::move(connection.body), ""};
    connection.busy = false;
    // If the answer came before the whole request was sent, the server would treat the next request
    // as the rest of this one.
    const bool all_sent = connection.written == connection.exchange.request.size();
    if (end.error.empty() && options_.keep_alive && connection.parser.keep_alive() && all_sent &&
        !has_more) {
      Keep(connection);
    } else {
      Close(connection);
    }
    --num_running_;
    TellEnd(*handler, now, std::move(end));
  }

  static void TellEnd(StreamHandler& handler, double now, StreamEnd end) {
    RunGuarded("client", "the end of an answer", [&] { handler.OnEnd(now, std::move(end)); });
  }

  void Handle(Connection& connection, uint32_t events) {
    StreamHandler* const handler = connection.exchange.handler;
    try {
      HandleEvents(connection, events);
    } catch (...) {
      LogCaught("client", "an exchange");
      if (handler != nullptr) EndAfterException(*handler, CaughtMessage());
    }
  }

  // Ends the exchange of `handler`, whether or not it has a connection, unless its failure is
  // already queued.
  void EndAfterException(StreamHandler& handler, std::string message) {
    const double now = MonotonicSeconds();
    if (Connection* connection = Find(handler)) return End(*connection, now, std::move(message));
    if (std::ranges::any_of(failures_, [&](const auto& one) { return one.first == &handler; }))
      return;
    --num_running_;
    TellEnd(handler, now, StreamEnd{0, std::move(message), "", ""});
  }

  void HandleEvents(Connection& connection, uint32_t events) {
    if (connection.fd < 0) return;  // was closed by an earlier event of this batch
    if (!connection.busy) {         // idle: the server closed it, or sent something that was not
                                    // requested
      std::erase(idle_, &connection);
      Close(connection);
      return;
    }
    if (!connection.connected) {
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(connection.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        Exchange exchange = std::move(connection.exchange);
        const size_t address = connection.address;
        Close(connection);
        ConnectFailed(std::move(exchange), address, error);
        return;
      }
      connection.connected = true;
    }
    bool writes = (events & EPOLLOUT) != 0;
    if (connection.tls && !connection.tls->ready()) {
      if (!ShakeHands(connection)) return;
      writes = true;
    }
    if (writes && !Write(connection)) return;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    // Bytes that TLS has already buffered cause no epoll event.
    while (Read(connection) && connection.tls && connection.tls->has_buffered()) {
    }
  }

  // Reads received bytes. Returns false if there are none left, or if the exchange has ended.
  bool Read(Connection& connection) {
    const ssize_t got = ReceiveSome(connection, buffer_.data(), buffer_.size());
    const double now = MonotonicSeconds();
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      const int reason = got < 0 ? errno : 0;
      if (connection.reused && !connection.parser.started()) {
        Replace(connection);
        return false;
      }
      const Status end = connection.parser.End();
      std::string error = end ? "" : end.error().message;
      const bool told = connection.tls && !connection.tls->problem().empty();
      if (reason != 0)
        error += fmt::format(" ({})", told ? connection.tls->problem() : std::strerror(reason));
      End(connection, now, std::move(error));
      return false;
    }
    std::string_view bytes(buffer_.data(), static_cast<size_t>(got));
    ResponseParser& parser = connection.parser;
    while (!bytes.empty() && !parser.done()) {
      const auto piece = parser.Take(bytes);
      if (!piece) {
        End(connection, now, piece.error().message);
        return false;
      }
      const Status passed = CatchToResult([&] { return PassOn(connection, *piece, now); });
      if (!passed) {
        End(connection, now, passed.error().message);
        return false;
      }
    }
    if (!parser.done()) return true;
    const bool has_more =
        !bytes.empty() || (connection.tls != nullptr && connection.tls->has_buffered());
    End(connection, now, "", has_more);
    return false;
  }

  // Passes to the handler the head and a piece of the body.
  static Status PassOn(Connection& connection, std::string_view piece, double now) {
    const ResponseParser& parser = connection.parser;
    StreamHandler& handler = *connection.exchange.handler;
    TellHead(connection);
    if (piece.empty()) return {};
    if (handler.wants_bytes()) {
      handler.OnBytes(piece);
    } else if (parser.status() == 200 && parser.is_event_stream()) {
      connection.events.Take(piece, [&](std::string_view data) {
        handler.OnEvent(now, data);
        return true;
      });
    } else if (connection.body.size() + piece.size() <= kMaxBodyBytes) {
      connection.body += piece;
    } else {
      return Fail(ErrorCode::kUnavailable, "the server's answer is too long");
    }
    return {};
  }

  static void TellHead(Connection& connection) {
    const ResponseParser& parser = connection.parser;
    if (connection.has_told_head || !(parser.in_body() || parser.done())) return;
    connection.has_told_head = true;
    if (connection.exchange.handler->wants_bytes())
      connection.exchange.handler->OnHead(parser.status(), parser.head());
  }

  void EndLateOnes(double now) {
    std::vector<Connection*> late;
    for (const auto& connection : connections_) {
      if (connection->busy && connection->exchange.deadline < now) late.push_back(connection.get());
    }
    for (Connection* connection : late) {
      End(*connection, now,
          fmt::format("no end of the answer within {} s", options_.timeout_seconds));
    }
  }

  Options options_;
  std::string host_;
  std::vector<Address> addresses_;
  size_t preferred_ = 0;
  int epoll_ = -1;
  int timer_ = -1;
  int watched_cancel_ = -1;
  double next_check_ = 0;
  double timer_until_ = 0;  // time at which the timer expires; 0: not set
  size_t num_running_ = 0;
  std::vector<char> buffer_;
  std::vector<std::unique_ptr<Connection>> connections_, dead_;
  std::vector<Connection*> idle_;
  std::vector<std::pair<StreamHandler*, StreamEnd>> failures_;
};

Result<std::unique_ptr<StreamClient>> StreamClient::Create(Options options) {
  auto loop = std::make_unique<Loop>(std::move(options));
  RETURN_IF_ERROR(loop->Open());
  return std::unique_ptr<StreamClient>(new StreamClient(std::move(loop)));
}

StreamClient::StreamClient(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
StreamClient::~StreamClient() = default;

void StreamClient::Get(std::string_view path, std::string_view headers, StreamHandler& handler) {
  loop_->Send("GET", path, headers, std::nullopt, handler);
}

void StreamClient::Post(std::string_view path, std::string_view headers, std::string_view body,
                        StreamHandler& handler) {
  loop_->Send("POST", path, headers, body, handler);
}

void StreamClient::Forward(std::string_view method, std::string_view path, std::string_view headers,
                           std::string_view body, StreamHandler& handler) {
  loop_->Forward(method, path, headers, body, handler);
}

void StreamClient::Cancel(const StreamHandler& handler) {
  loop_->Cancel(handler);
}

void StreamClient::Pause(const StreamHandler& handler, bool paused) {
  loop_->Pause(handler, paused);
}

bool StreamClient::Poll(double until, int cancel_fd) {
  return loop_->Poll(until, cancel_fd);
}

size_t StreamClient::num_running() const {
  return loop_->num_running();
}

size_t StreamClient::MaxConnections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1 << 20);
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  // Number of descriptors reserved for other purposes than connections.
  constexpr rlim_t kOthers = 64;
  return limit.rlim_cur > 2 * kOthers ? static_cast<size_t>(limit.rlim_cur - kOthers) : kOthers;
}

}  // namespace sluice
