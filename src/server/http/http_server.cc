#include "server/http/http_server.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include "base/firewall.h"
#include "base/log.h"
#include "server/http/http_connection.h"
#include "server/http/socket_file.h"

namespace sluice {
namespace {

using boost::system::error_code;
using tcp = asio::ip::tcp;
using Socket = HttpStream::Socket;
using Acceptor = asio::basic_socket_acceptor<Socket::protocol_type>;

// Interval between checks of the connections' deadlines.
constexpr auto kTick = std::chrono::milliseconds(250);
// Pause before another attempt to wait for a connection, if memory was lacking.
constexpr auto kTimeForMemory = std::chrono::milliseconds(10);
// Maximum number of connections in the system's queue.
constexpr int kMaxWaiting = 4096;

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(const ServerConfig& config, std::shared_ptr<RequestMemory> memory,
                 HttpHandler* handler, RecordFunction record)
      : core_(std::make_shared<HttpCore>()) {
    core_->config = config;
    core_->memory = std::move(memory);
    core_->handler = handler;
    core_->record = std::move(record);
    for (int i = 0; i < std::max(1, config.io_threads); ++i)
      core_->threads.push_back(std::make_unique<HttpIoThread>());
    acceptor_.emplace(core_->threads[0]->context);
    retry_.emplace(core_->threads[0]->context);
  }
  ~HttpServerImpl() override { Stop(); }

  Status Bind() {
    if (core_->config.tls.enabled()) {
      ASSIGN_OR_RETURN(core_->certificates, TlsCertificates::Load(core_->config.tls));
    }
    return core_->config.uds.empty() ? BindPort() : BindPath();
  }

  uint16_t port() const override { return port_; }
  int64_t num_exchanges() const override { return core_->num_exchanges; }
  int64_t num_connections() const override { return core_->num_connections; }

  void Start() override {
    if (!core_->config.listen_when_ready) Accept();
    for (auto& io : core_->threads) {
      io->thread = StartThread("http", [context = &io->context] { RunToEnd(*context); });
    }
  }

  void ReloadCertificates() override {
    if (core_->certificates != nullptr) core_->certificates->Reload();
  }
  void RefreshCertificates() override {
    if (core_->certificates != nullptr) core_->certificates->RefreshIfChanged();
  }

  Status OpenDoor() override {
    if (!core_->config.listen_when_ready || core_->leaving) return {};
    error_code error;
    acceptor_->listen(kMaxWaiting, error);
    if (error == asio::error::address_in_use) return PortInUse();
    if (error) return CannotListen(error);
    asio::post(core_->threads[0]->context, [this] {
      if (!core_->stopped && acceptor_->is_open()) Accept();
    });
    return {};
  }

  void BeginLeaving() override { core_->leaving = true; }

  void StopAccepting() override {
    asio::post(core_->threads[0]->context, [this] {
      error_code error;
      acceptor_->cancel(error);
      acceptor_->non_blocking(true, error);
      while (!error) {
        HttpIoThread* const io = NextThread();
        Socket socket = acceptor_->accept(io->context, error);
        if (!error)
          RunGuarded("http", "to take a connection", [&] { Take(io, std::move(socket)); });
      }
      retry_->cancel();
      acceptor_->close(error);
    });
  }

  void BeginDrain() override {
    core_->draining = true;
    for (auto& io : core_->threads) {
      asio::post(io->context, [io = io.get()] {
        const auto connections = io->connections;
        for (const auto& connection : connections) connection->CloseIfIdle();
      });
    }
  }

  void Stop() override {
    if (core_->stopped.exchange(true)) return;
    // Posted to the accepting thread, so that it runs after the last accepted connection was
    // started.
    asio::post(core_->threads[0]->context, [this] {
      error_code ignored;
      acceptor_->close(ignored);
      retry_->cancel();
      for (auto& io : core_->threads) {
        asio::post(io->context, [io = io.get()] {
          const auto connections = io->connections;
          for (const auto& connection : connections) connection->Close();
          io->tick.cancel();
          io->work.reset();
        });
      }
    });
    for (auto& io : core_->threads) {
      if (io->thread.joinable())
        io->thread.join();
      else
        io->context.poll();
    }
    acceptor_.reset();
    socket_file_.reset();
    retry_.reset();
  }

 private:
  Status BindPort() {
    const ServerConfig& config = core_->config;
    error_code error;
    const std::string host(Host());
    tcp::endpoint endpoint;
    if (const auto address = asio::ip::make_address(host, error); !error) {
      endpoint = {address, config.port};
    } else {
      tcp::resolver resolver(core_->threads[0]->context);
      const auto found = resolver.resolve(host, std::to_string(config.port), error);
      if (error || found.empty()) {
        return Fail(
            ErrorCode::kInvalidArgument,
            fmt::format("--host {} is not an address of this machine: {}", host, error.message()),
            "host");
      }
      endpoint = *found.begin();
    }
    error = ListenAt(endpoint);
    if (error == asio::error::address_in_use) return PortInUse();
    if (error) return CannotListen(error);
    // A generic endpoint has no port() method.
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (getsockname(acceptor_->native_handle(), reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      endpoint.resize(size);
      std::memcpy(endpoint.data(), &bound, size);
    }
    port_ = endpoint.port();
    if (!config.needs_key() && !endpoint.address().is_loopback()) {
      LOG_WARNING("http",
                  "anyone who can reach {} port {} can use this server: it accepts connections "
                  "from other machines, and neither --api-key nor --api-key-file is given",
                  host, port_);
    }
    return {};
  }

  std::string_view Host() const {
    return core_->config.host.empty() ? std::string_view("0.0.0.0") : core_->config.host;
  }
  tl::unexpected<Error> PortInUse() const {
    return Fail(ErrorCode::kAddressInUse,
                fmt::format("port {} of {} is already in use; stop the program that listens there "
                            "or choose another port with --port",
                            core_->config.port, Host()),
                "port");
  }
  tl::unexpected<Error> CannotListen(const error_code& error) const {
    const ServerConfig& config = core_->config;
    if (!config.uds.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--uds {}: cannot listen there: {}", config.uds, error.message()),
                  "uds");
    }
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot listen on {} port {}: {}; choose another --host or --port",
                            Host(), config.port, error.message()),
                "host");
  }

  // Any user who may write the file may use the server. The umask determines the file's mode.
  Status BindPath() {
    const std::string& path = core_->config.uds;
    RETURN_IF_ERROR(RemoveStaleSocket(path));
    if (const error_code error = ListenAt(asio::local::stream_protocol::endpoint(path)))
      return CannotListen(error);
    socket_file_.emplace(path);
    return {};
  }

  template <typename Endpoint>
  error_code ListenAt(const Endpoint& endpoint) {
    error_code error;
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(Acceptor::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error && !core_->config.listen_when_ready) acceptor_->listen(kMaxWaiting, error);
    return error;
  }

  // Connections catch their own exceptions. Any other exception ends only one handler.
  static void RunToEnd(asio::io_context& context) {
    while (!RunGuarded("http", "a handler of an I/O thread", [&] { context.run(); })) {
    }
  }

  HttpIoThread* NextThread() { return core_->threads[next_++ % core_->threads.size()].get(); }

  // Waits for the next connection. If there is no memory even for that, tries again until there is:
  // otherwise no connection would ever be accepted again.
  void Accept() {
    while (!RunGuarded("http", "to wait for a connection", [this] { TryAccept(); }))
      std::this_thread::sleep_for(kTimeForMemory);
  }

  void TryAccept() {
    HttpIoThread* const io = NextThread();
    acceptor_->async_accept(io->context, [this, io](error_code error, Socket socket) {
      if (error == asio::error::operation_aborted || core_->stopped) return;
      // Out of file descriptors: waits until some are free instead of spinning.
      if (error && RunGuarded("http", "to wait for file descriptors", [&] { AcceptLater(error); }))
        return;
      if (!error) RunGuarded("http", "to take a connection", [&] { Take(io, std::move(socket)); });
      Accept();
    });
  }

  void AcceptLater(error_code reason) {
    LOG_WARNING("http", "cannot accept a connection: {}", reason.message());
    retry_->expires_after(std::chrono::milliseconds(100));
    retry_->async_wait([this](error_code cancelled) {
      if (!cancelled) Accept();
    });
  }

  void Take(HttpIoThread* io, Socket socket) {
    if (core_->num_connections >= core_->config.max_connections) {
      if (core_->certificates != nullptr) return;  // a TLS handshake costs too much for this answer
      static constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: "
          "close\r\n\r\n";
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull), ignored);
      socket.shutdown(Socket::shutdown_send, ignored);
      // Only expired deadlines make room, so this also retries BeginTicking if that failed before.
      asio::post(io->context, [this, io] {
        if (!core_->stopped && !io->ticking && !io->connections.empty()) BeginTicking(io);
      });
      return;
    }
    auto connection = MakeHttpConnection(core_, io, std::move(socket));
    asio::post(io->context, [this, io, connection = std::move(connection)] {
      if (core_->stopped) return;
      io->connections.insert(connection);
      connection->Start();
      if (!io->ticking) BeginTicking(io);
    });
  }

  // Starts the checks of deadlines. If memory is lacking, the next connection retries.
  static void BeginTicking(HttpIoThread* io) {
    io->ticking = RunGuarded("http", "to look at deadlines", [io] { Tick(io); });
  }

  // Checks deadlines a few times a second, but only while there are connections.
  static void Tick(HttpIoThread* io) {
    io->tick.expires_after(kTick);
    io->tick.async_wait([io](error_code error) {
      if (error) return;
      const auto now = std::chrono::steady_clock::now();
      RunGuarded("http", "to look for connections that time out", [&] {
        const std::vector<std::shared_ptr<HttpConnection>> connections(io->connections.begin(),
                                                                       io->connections.end());
        for (const auto& connection : connections) connection->CheckDeadline(now);
      });
      if (io->connections.empty()) {
        io->ticking = false;
      } else {
        BeginTicking(io);
      }
    });
  }

  const std::shared_ptr<HttpCore> core_;
  std::optional<Acceptor> acceptor_;
  std::optional<asio::steady_timer> retry_;
  std::optional<SocketFile> socket_file_;
  uint16_t port_ = 0;  // 0 for a unix socket
  size_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const ServerConfig& config,
                                                       std::shared_ptr<RequestMemory> memory,
                                                       HttpHandler* handler,
                                                       RecordFunction record) {
  auto server =
      std::make_unique<HttpServerImpl>(config, std::move(memory), handler, std::move(record));
  RETURN_IF_ERROR(server->Bind());
  return server;
}

}  // namespace sluice
