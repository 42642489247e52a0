#include "server/http/http_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "base/firewall.h"
#include "base/log.h"
#include "base/mutex.h"
#include "server/http/connection_limits.h"
#include "server/http/exact_allocator.h"
#include "server/http/incoming_request.h"
#include "server/http/request_framing.h"
#include "server/http/response_head.h"

namespace sluice {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using Socket = HttpStream::Socket;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

// Also frees the capacity, which assigning an empty string would keep.
void Free(std::string& text) {
  std::string().swap(text);
}

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Maximum number of bytes of an error body that the log needs.
constexpr size_t kMaxErrorBytes = 2048;

class Connection : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpCore> core, HttpIoThread* io, Socket socket)
      : core_(std::move(core)),
        io_(io),
        tls_memory_(TakeTlsMemory(*core_)),
        stream_(std::move(socket),
                core_->certificates == nullptr ? nullptr : core_->certificates->context()),
        socket_(stream_.socket()),
        received_(core_->memory),
        unsent_(core_->memory) {
    error_code error;
    const Socket::endpoint_type remote = socket_.remote_endpoint(error);
    if (!error) client_ = NameOf(remote);
    ++core_->num_connections;
  }
  ~Connection() override { --core_->num_connections; }

  // --- On the I/O thread

  void Start() override {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    deadline_ = Clock::now() + Seconds(core_->config.header_timeout_seconds);
    if (stream_.tls()) {
      state_ = State::kHandshake;
      return Guard([this] { ContinueHandshake(); });
    }
    Guard([this] { ArmRead(); });
  }

  void CheckDeadline(Clock::time_point now) override {
    if (now >= write_deadline_) return Close();
    if (now >= probe_time_) return Guard([&] { ProbeHalfClosed(now); });
    if (state_ == State::kBusy || now < deadline_) return;
    if (state_ == State::kHead || state_ == State::kBody)
      return Guard([this] { Refuse(408, "The request did not arrive in time."); });
    Close();
  }

  void CloseIfIdle() override {
    if (state_ == State::kIdle && in_.empty()) Close();
  }

  void Close() override {
    if (closed_) return;
    closed_ = true;
    error_code ignored;
    socket_.close(ignored);
    const auto self = shared_from_this();
    std::function<void()> on_closed = TakeOnClosed();
    // Frees queued data, because a running handler may keep this connection alive for a while.
    {
      const MutexLock lock(mutex_);
      out_ = {};
      unsent_.Shrink(0);
    }
    sending_ = {};
    sending_index_ = sent_ = 0;
    incoming_.reset();
    Free(in_);
    received_.Shrink(0);
    if (state_ == State::kBusy) EndRecord();
    io_->connections.erase(self);
    if (on_closed) on_closed();
  }

  // --- For writers, called on any thread

  // Queues bytes to be sent; `body_bytes` of them belong to the body. Ignored unless `exchange` is
  // the current one.
  void Append(uint64_t exchange, std::string_view bytes, uint64_t body_bytes, bool end) {
    AppendPieces(exchange, {bytes}, body_bytes, end);
  }
  void AppendPieces(uint64_t exchange, std::initializer_list<std::string_view> pieces,
                    uint64_t body_bytes, bool end) {
    const MutexLock lock(mutex_);
    if (gone_ || exchange != exchange_ || ended_) return;
    AppendLocked(pieces);
    response_bytes_ += body_bytes;
    ended_ = end;
  }
  // Queues the whole rest of an answer, without a copy. REQUIRES: MayHold() if it is large.
  void AppendBody(uint64_t exchange, std::string body) {
    const MutexLock lock(mutex_);
    if (gone_ || exchange != exchange_ || ended_) return;
    const size_t size = body.size();
    if (TakeUnsent(size) && size > 0) {
      out_.push_back(std::move(body));
      backlog_ += size;
    }
    response_bytes_ += size;
    ended_ = true;
  }
  // Reserves memory for the bytes to be appended next. Returns false if it is refused.
  bool MayHold(uint64_t bytes) {
    const MutexLock lock(mutex_);
    return unsent_.TryResize(backlog_ + bytes);
  }
  void SetNotes(uint64_t exchange, AnswerNotes notes) {
    const MutexLock lock(mutex_);
    if (exchange == exchange_) notes_ = std::move(notes);
  }
  void CorrectNotes(uint64_t exchange, const std::function<void(AnswerNotes&)>& change) {
    const MutexLock lock(mutex_);
    if (exchange == exchange_ && notes_) change(*notes_);
  }
  void SetErrorBody(uint64_t exchange, std::string_view body) {
    const MutexLock lock(mutex_);
    if (exchange == exchange_) error_body_ = body.substr(0, kMaxErrorBytes);
  }
  void SetStatus(uint64_t exchange, int status, bool close_after) {
    const MutexLock lock(mutex_);
    if (exchange != exchange_) return;
    status_ = status;
    close_after_ = close_after_ || close_after;
  }
  void Abort(uint64_t exchange) {
    const MutexLock lock(mutex_);
    if (gone_ || exchange != exchange_) return;
    Post([self = shared_from_this(), exchange] {
      bool current = false;
      {
        const MutexLock lock(self->mutex_);
        current = exchange == self->exchange_ && !self->ended_;
      }
      if (current) self->Close();
    });
  }
  bool Backlogged(uint64_t exchange) {
    if (backlog_ < kBacklogHigh || Gone(exchange)) return false;
    wants_writable_ = true;
    if (backlog_ >= kBacklogLow) return true;
    wants_writable_ = false;
    return false;
  }
  bool Gone(uint64_t exchange) {
    const MutexLock lock(mutex_);
    return gone_ || exchange != exchange_;
  }
  void SetCallbacks(uint64_t exchange, std::function<void()> on_closed,
                    std::function<void()> on_writable) {
    {
      const MutexLock lock(mutex_);
      if (!gone_ && exchange == exchange_) {
        on_closed_ = std::move(on_closed);
        on_writable_ = std::move(on_writable);
        return;
      }
    }
    if (on_closed) on_closed();
  }

  bool closes_after_answers() const { return core_->leaving || core_->draining; }
  const HttpCore& core() const { return *core_; }

 private:
  enum class State { kHandshake, kIdle, kHead, kBody, kBusy, kLingering };

  // Reserves the memory of a TLS connection before the handshake.
  static MemoryLease TakeTlsMemory(const HttpCore& core) {
    MemoryLease lease(core.memory);
    if (core.certificates != nullptr && !lease.TryResize(HttpStream::kTlsBytes))
      throw std::bad_alloc();
    return lease;
  }

  std::function<void()> TakeOnClosed() {
    std::function<void()> on_writable;
    const MutexLock lock(mutex_);
    gone_ = true;
    on_writable.swap(on_writable_);
    return std::exchange(on_closed_, nullptr);
  }

  // Runs a task on the I/O thread. REQUIRES: gone_ is false: a task posted after the I/O thread has
  // ended would stay in its queue and keep the connection alive forever.
  void Post(std::function<void()> task) REQUIRES(mutex_) {
    asio::post(io_->context, std::move(task));
  }

  // Appends all pieces or, if it throws, none: a chunk without its end would hide all later ones.
  // REQUIRES: gone_ is false.
  void AppendLocked(std::initializer_list<std::string_view> pieces) REQUIRES(mutex_) {
    size_t size = 0;
    for (const std::string_view piece : pieces) size += piece.size();
    if (!TakeUnsent(size) || size == 0) return;
    if (out_.empty() || out_.back().size() + size > kBacklogHigh) out_.emplace_back();
    std::string& last = out_.back();
    last.reserve(last.size() + size);
    for (const std::string_view piece : pieces) last.append(piece);
    backlog_ += size;
  }

  // Reserves memory for bytes that the caller appends to out_ and adds to backlog_, and posts the
  // flush that sends them. Returns false if the memory is refused; the answer is then cut off.
  // REQUIRES: gone_ is false.
  bool TakeUnsent(size_t size) REQUIRES(mutex_) {
    if (!unsent_.TryResize(std::max<uint64_t>(unsent_.bytes(), backlog_ + size))) {
      Post([self = shared_from_this()] { self->Close(); });
      return false;
    }
    if (!flush_posted_) {
      Post([self = shared_from_this()] { self->Guard([&] { self->Flush(); }); });
      flush_posted_ = true;
    }
    return true;
  }

  // Runs `work`. An exception, such as a failed allocation, fails only this request.
  template <typename Work>
  void Guard(Work work) {
    try {
      work();
    } catch (...) {
      OnCaught();
    }
  }
  // REQUIRES: the caller is in a catch block.
  void OnCaught() {
    const bool is_memory = CaughtError().code == ErrorCode::kResourceExhausted;
    if (!is_memory) LogCaught("http", "a connection");
    Free(in_);
    try {
      if (!closed_ && (state_ == State::kHead || state_ == State::kBody)) {
        return is_memory ? Refuse(503, "The server is out of memory; try again later.")
                         : Refuse(500, "The server failed; its log has the reason.");
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): the connection ends without an answer
    }
    Close();
  }

  // The handshake has the same time limit as a request's head.
  void ContinueHandshake() {
    error_code error;
    stream_.Handshake(error);
    if (error == asio::error::would_block) {
      return Wait(stream_.wanted(), [this] { ContinueHandshake(); });
    }
    if (error && stream_.BecomePlainForHttp())
      return Refuse(400, "This port uses HTTPS, but the request is plain HTTP.");
    if (error) {
      LOG_DEBUG("http", "TLS handshake with {} failed: {}", client_, stream_.reason());
      return Close();
    }
    state_ = State::kIdle;
    ArmRead();
  }

  // Calls `work` once the socket is ready, unless the connection is closed before.
  template <typename Work>
  void Wait(Socket::wait_type what, Work work) {
    socket_.async_wait(what, [self = shared_from_this(), work](error_code error) {
      if (!error && !self->closed_) self->Guard(work);
    });
  }

  void ArmRead(Socket::wait_type what = Socket::wait_read) {
    if (read_armed_ || closed_ || saw_eof_) return;
    if (state_ == State::kBusy && in_.size() > kMaxPipelinedBytes) return;
    read_armed_ = true;
    const auto on_ready = [self = shared_from_this()](error_code error) {
      self->read_armed_ = false;
      if (!error && !self->closed_) self->Guard([&] { self->OnReadable(); });
    };
    socket_.async_wait(what, asio::bind_allocator(ExactAllocator<char>(), on_ready));
  }

  void OnReadable() {
    static thread_local char buffer[64 << 10];
    error_code error;
    const size_t size = stream_.Read(buffer, sizeof buffer, error);
    if (error == asio::error::would_block) return ArmRead(stream_.wanted());
    if (error == asio::error::eof) return OnEof();
    if (error) return Close();
    if (state_ != State::kLingering) {
      in_.append(buffer, size);
      Process();
    }
    if (!closed_) ArmRead();
  }

  // The client sends no more data. It may still be reading, or it may have closed the connection:
  // both look the same until something is sent. Its requests are answered; then the connection
  // ends, or sooner if the client's system replies with an error.
  void OnEof() {
    saw_eof_ = true;
    if (state_ != State::kBusy) return Close();
    probe_time_ = Clock::now() + kProbeInterval;
    socket_.async_wait(Socket::wait_error, [self = shared_from_this()](error_code error) {
      if (!error) self->Close();
    });
  }

  // Before an answer begins, an interim response, which HTTP/1.1 clients skip, shows whether a
  // half-closed client still exists.
  void ProbeHalfClosed(Clock::time_point now) {
    probe_time_ = now + kProbeInterval;
    if (http10_ || state_ != State::kBusy) return;
    const MutexLock lock(mutex_);
    if (!gone_ && status_ == 0 && on_closed_) AppendLocked({kContinue});
  }

  void Process() {
    while (state_ != State::kBusy && state_ != State::kLingering && !closed_ && !in_.empty()) {
      const auto now = Clock::now();
      if (incoming_ == nullptr) {
        incoming_ = std::make_unique<IncomingRequest>(core_->memory);
        recorded_ = {};
        recorded_.start = now;
        incoming_->parser.header_limit(core_->config.max_header_bytes);
        incoming_->parser.body_limit(core_->config.max_body_bytes);
        incoming_->parser.eager(true);
        state_ = State::kHead;
        deadline_ = now + Seconds(core_->config.header_timeout_seconds);
      }
      HttpRequestParser& parser = incoming_->parser;
      error_code error;
      const size_t used = parser.put(asio::buffer(in_), error);
      in_.erase(0, used);
      if (in_.empty()) Free(in_);
      if (parser.is_header_done() && state_ == State::kHead) {
        // Checked before errors of the body, because parsing the body depends on the head.
        if (const auto fault = FindHeadFault(parser.fields(), parser.version()))
          return Refuse(fault->status, fault->message);
      }
      if (error && error != http::error::need_more) return RefuseParse(error);
      if (parser.is_header_done() && state_ == State::kHead) {
        state_ = State::kBody;
        deadline_ = now + Seconds(core_->config.body_timeout_seconds);
        if (!OnHead()) return;
      }
      if (parser.is_done()) return Dispatch();
      if (used == 0 || error == http::error::need_more) break;
    }
    const bool arrives = state_ == State::kHead || state_ == State::kBody;
    if (!received_.TryResize(in_.size()) && arrives) return RefuseMemory(in_.size());
    // The parser limits the head, but not the data between the chunks of a body.
    if (state_ == State::kBody && in_.size() > core_->config.max_header_bytes) {
      Refuse(431, fmt::format("A chunk's header or the trailer is larger than {} bytes.",
                              core_->config.max_header_bytes));
    }
  }

  void RefuseParse(error_code error) {
    if (error == boost::system::errc::not_enough_memory)
      return RefuseMemory(incoming_->parser.wanted_bytes());
    if (error == http::error::header_limit) return Refuse(431, "The request's head is too large.");
    if (error == http::error::body_limit) {
      return Refuse(413, fmt::format("The request body is larger than {} bytes.",
                                     core_->config.max_body_bytes));
    }
    Refuse(400, "Invalid HTTP request received.");
  }

  void RefuseMemory(uint64_t bytes) {
    const MemoryRefusal refusal = RefusalOf(*core_->memory, bytes);
    Refuse(refusal.status, refusal.message);
  }

  std::string LocalName() const {
    error_code error;
    const Socket::endpoint_type local = socket_.local_endpoint(error);
    return error ? "" : NameOf(local);
  }

  // Returns false if the head ended the request.
  bool OnHead() {
    HttpRequestParser& parser = incoming_->parser;
    if (!parser.known_method()) {
      Refuse(400, "Invalid HTTP request received.");
      return false;
    }
    incoming_->TakeHead(client_, [this] { return LocalName(); });
    const HttpRequest& head = incoming_->head;
    recorded_.method = head.method;
    recorded_.target = head.target;
    if (const std::string* id = head.Header("x-request-id"); id != nullptr) recorded_.id = *id;
    std::optional<HttpResponse>& early = incoming_->early = core_->handler->CheckHead(head);
    const bool complete = parser.is_done();
    if (early && !complete &&
        (parser.chunked() || parser.content_length_remaining().value_or(0) > kMaxDiscardedBody)) {
      {
        const MutexLock lock(mutex_);
        close_after_ = true;
      }
      Dispatch();
      return false;
    }
    const uint64_t body_bytes = complete ? 0 : parser.content_length_remaining().value_or(0);
    if (!early && core_->memory->IsTooLarge(body_bytes)) {
      RefuseMemory(body_bytes);
      return false;
    }
    const std::string* expect = head.Header("expect");
    if (!complete && !early && expect != nullptr && parser.version() == 11 && in_.empty()) {
      const MutexLock lock(mutex_);
      AppendLocked({kContinue});
    }
    return true;
  }

  uint64_t BeginExchange(bool close_after) {
    ++core_->num_exchanges;
    state_ = State::kBusy;
    const MutexLock lock(mutex_);
    exchange_ = ++last_exchange_;
    ended_ = false;
    close_after_ = close_after_ || close_after;
    status_ = 0;
    response_bytes_ = 0;
    notes_.reset();
    error_body_.clear();
    return exchange_;
  }

  void Dispatch();
  void Refuse(int status, const std::string& message);

  void Flush() {
    {
      const MutexLock lock(mutex_);
      flush_posted_ = false;
    }
    if (writing_ || closed_) return;
    writing_ = true;
    ContinueWrite();
  }

  void ContinueWrite() {
    while (!closed_) {
      if (sending_index_ == sending_.size()) {
        MutexLock lock(mutex_);
        std::vector<std::string>().swap(sending_);
        sending_index_ = 0;
        if (out_.empty()) {
          writing_ = false;
          const bool finished = ended_;
          lock.Unlock();
          if (finished && state_ == State::kBusy) FinishExchange();
          return;
        }
        sending_.swap(out_);
      }
      std::string& piece = sending_[sending_index_];
      error_code error;
      const size_t size = stream_.Write(std::string_view(piece).substr(sent_), error);
      if (error == asio::error::would_block) {
        if (write_deadline_ == Clock::time_point::max()) {
          write_deadline_ = Clock::now() + Seconds(core_->config.write_timeout_seconds);
        }
        return Wait(stream_.wanted(), [this] { ContinueWrite(); });
      }
      if (error) return Close();
      write_deadline_ = Clock::time_point::max();
      sent_ += size;
      if (sent_ == piece.size()) {
        Free(piece);
        ++sending_index_;
        sent_ = 0;
      }
      {
        const MutexLock lock(mutex_);
        backlog_ -= size;
        unsent_.Shrink(backlog_);
      }
      if (backlog_ < kBacklogLow && wants_writable_.exchange(false)) {
        std::function<void()> on_writable;
        {
          const MutexLock lock(mutex_);
          on_writable = on_writable_;
        }
        if (on_writable) on_writable();
      }
    }
  }

  // Ends the record of an exchange. Called once per exchange, when State::kBusy ends.
  void EndRecord() {
    state_ = State::kIdle;
    --core_->num_exchanges;
    HttpExchangeRecord record;
    record.client = client_;
    const std::string path = SplitTarget(recorded_.target).first;
    record.method = recorded_.method;
    record.target = recorded_.target;
    record.path = path;
    record.version = http10_ ? "1.0" : "1.1";
    record.request_bytes = recorded_.body_bytes;
    record.seconds = std::chrono::duration<double>(Clock::now() - recorded_.start).count();
    record.request_id = recorded_.id;
    std::optional<AnswerNotes> notes;
    std::string error_body;
    {
      const MutexLock lock(mutex_);
      notes.swap(notes_);
      error_body.swap(error_body_);
      record.status = status_ != 0 ? status_ : core_->stopped ? 503 : kClientGone;
      record.response_bytes = response_bytes_;
    }
    if (notes) record.notes = &*notes;
    record.error_body = error_body;
    if (core_->record && !recorded_.method.empty()) core_->record(record);
  }

  void FinishExchange() {
    EndRecord();
    bool close = false;
    std::function<void()> on_closed,
        on_writable;  // destroyed without the lock; may own the last writer
    {
      const MutexLock lock(mutex_);
      exchange_ = 0;
      on_closed.swap(on_closed_);
      on_writable.swap(on_writable_);
      close = close_after_;
    }
    incoming_.reset();
    // Pipelined requests are also answered if they came before the client's end of stream.
    if (close || core_->draining || (saw_eof_ && in_.empty())) {
      state_ = State::kLingering;
      deadline_ = Clock::now() + kLinger;
      return EndConnection();
    }
    deadline_ = Clock::now() + Seconds(core_->config.keep_alive_seconds);
    Process();
    if (saw_eof_ && state_ != State::kBusy) return Close();  // the last request is incomplete
    if (!closed_) ArmRead();
  }

  // After the last answer, reads for a while what the client still sends, so that the client sees
  // the answer instead of a reset.
  void EndConnection() {
    error_code error;
    stream_.EndWriting(error);
    if (error == asio::error::would_block)
      return Wait(stream_.wanted(), [this] { EndConnection(); });
    if (saw_eof_) return Close();
    ArmRead();
  }

  const std::shared_ptr<HttpCore> core_;
  HttpIoThread* const io_;
  const MemoryLease tls_memory_;
  HttpStream stream_;
  Socket& socket_;  // the socket of stream_
  std::string client_;

  // The following are used only by the I/O thread.
  State state_ = State::kIdle;
  bool closed_ = false, read_armed_ = false, saw_eof_ = false, writing_ = false, http10_ = false;
  std::string in_;
  MemoryLease received_;  // lease for the memory of in_; the parser has another one for the body
  std::unique_ptr<IncomingRequest> incoming_;  // null between requests and while one is answered
  RecordedRequest recorded_;                   // the current request, or the last one
  std::vector<std::string> sending_;
  size_t sending_index_ = 0, sent_ = 0;  // index of the next piece to send, and how much of it is
                                         // sent
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();
  Clock::time_point probe_time_ = Clock::time_point::max();

  std::atomic<size_t> backlog_{0};  // number of bytes in out_ and sending_
  std::atomic<bool> wants_writable_{false};

  Mutex mutex_;
  std::vector<std::string> out_ GUARDED_BY(mutex_);  // pieces that follow those in sending_
  MemoryLease unsent_ GUARDED_BY(mutex_);            // memory of the backlog
  uint64_t exchange_ GUARDED_BY(mutex_) = 0;         // 0: no exchange
  uint64_t last_exchange_ GUARDED_BY(mutex_) = 0;
  bool ended_ GUARDED_BY(mutex_) = false;
  bool flush_posted_ GUARDED_BY(mutex_) = false;
  bool gone_ GUARDED_BY(mutex_) = false;
  bool close_after_ GUARDED_BY(mutex_) = false;
  int status_ GUARDED_BY(mutex_) = 0;  // 0: no answer yet
  uint64_t response_bytes_ GUARDED_BY(mutex_) = 0;
  std::optional<AnswerNotes> notes_ GUARDED_BY(mutex_);
  std::string error_body_ GUARDED_BY(mutex_);
  std::function<void()> on_closed_ GUARDED_BY(mutex_);
  std::function<void()> on_writable_ GUARDED_BY(mutex_);
};

class Writer : public ResponseWriter {
 public:
  // `head`: the request without its body. `memory`: the request's lease. The owner of this writer
  // may keep data derived from the request as long as the writer exists.
  Writer(std::shared_ptr<Connection> connection, uint64_t exchange, const HttpRequest& head,
         bool http10, bool close, std::shared_ptr<MemoryLease> memory)
      : connection_(std::move(connection)),
        exchange_(exchange),
        head_(std::make_unique<const HttpRequest>(head)),
        http10_(http10),
        head_only_(head.method == "HEAD"),
        close_(close),
        memory_(std::move(memory)) {}

  ~Writer() override {
    if (complete_) return;
    try {
      HttpResponse response;
      response.status = 500;
      response.body =
          R"({"error":{"message":"The request was dropped.","type":"InternalServerError","param":null,"code":500}})";
      Send(std::move(response));  // cuts off a stream that has begun
    } catch (...) {
      try {
        connection_->Abort(exchange_);  // so that the client does not wait
      } catch (...) {                   // NOLINT(bugprone-empty-catch)
        // Then it waits until its own timeout or the server's end.
      }
    }
  }

  void Send(HttpResponse response) override {
    // The handler, which adds headers, may have been destroyed with the server.
    if (closed()) return;
    // Out of memory after the head was sent: a second head is impossible, so the stream is cut off.
    if (started_) return connection_->Abort(exchange_);
    // Data derived from the request is no longer needed.
    if (memory_ != nullptr) memory_->Shrink(0);
    if (!connection_->MayHold(response.body.size() + kHeadRoom))
      response = Refused(response.body.size());
    // A 304 has no body. A content-length would state the length of the file, which is not sent.
    const std::string head = Head(
        response,
        response.status == 304 ? "" : fmt::format("content-length: {}\r\n", response.body.size()));
    if (response.status >= 400) connection_->SetErrorBody(exchange_, response.body);
    if (head_only_) response.body.clear();
    started_ = true;
    connection_->Append(exchange_, head, 0, false);
    connection_->AppendBody(exchange_, std::move(response.body));
    complete_ = true;  // last: if memory runs out before, the destructor cuts the connection
  }

  void SendRefusal(uint64_t bytes) { Send(Refused(bytes)); }

  void StartStream(HttpResponse response) override {
    if (closed()) return;
    close_ = close_ || http10_;
    const std::string out = Head(response, http10_ ? "" : "transfer-encoding: chunked\r\n");
    started_ = true;
    head_.reset();
    connection_->Append(exchange_, out, 0, false);
  }
  void WriteChunk(std::string_view data) override {
    if (data.empty() || head_only_) return;
    if (!started_) return connection_->Abort(exchange_);  // the head was not sent
    if (http10_) return connection_->Append(exchange_, data, data.size(), false);
    fmt::memory_buffer size;
    fmt::format_to(fmt::appender(size), "{:x}\r\n", data.size());
    connection_->AppendPieces(exchange_, {{size.data(), size.size()}, data, "\r\n"}, data.size(),
                              false);
  }
  void EndStream() override {
    if (!started_) connection_->Abort(exchange_);
    if (started_) connection_->Append(exchange_, http10_ || head_only_ ? "" : "0\r\n\r\n", 0, true);
    complete_ = true;
  }

  void Describe(AnswerNotes notes) override { connection_->SetNotes(exchange_, std::move(notes)); }
  void CorrectNotes(const std::function<void(AnswerNotes&)>& change) override {
    connection_->CorrectNotes(exchange_, change);
  }
  bool backlogged() const override { return connection_->Backlogged(exchange_); }
  bool closed() const override { return connection_->Gone(exchange_); }
  void SetCallbacks(std::function<void()> on_closed, std::function<void()> on_writable) override {
    connection_->SetCallbacks(exchange_, std::move(on_closed), std::move(on_writable));
  }

 private:
  // Returns the response for an answer or a request whose `bytes` do not fit into memory.
  HttpResponse Refused(uint64_t bytes) const {
    const MemoryRefusal refusal = RefusalOf(*connection_->core().memory, bytes);
    HttpResponse response;
    response.status = refusal.status;
    if (refusal.status == 503) response.headers.push_back({"retry-after", "1"});
    response.body = connection_->core().handler->ErrorBody(
        head_->target, refusal.status,
        refusal.status == 503 ? "ServiceUnavailableError" : "BadRequestError", refusal.message);
    return response;
  }
  std::string Head(const HttpResponse& response, std::string_view framing) {
    const bool close = close_ || connection_->closes_after_answers();
    connection_->SetStatus(exchange_, response.status, close);
    return ResponseHead(response,
                        connection_->core().handler->CommonHeaders(*head_, response.status),
                        framing, close);
  }

  const std::shared_ptr<Connection> connection_;
  const uint64_t exchange_;
  std::unique_ptr<const HttpRequest> head_;  // null once a stream has begun
  const bool http10_;
  const bool head_only_;  // whether the response has no body
  bool close_;
  bool started_ = false, complete_ = false;
  const std::shared_ptr<MemoryLease> memory_;
};

void Connection::Dispatch() {
  const std::unique_ptr<IncomingRequest> incoming = std::move(incoming_);
  HttpRequestParser& parser = incoming->parser;
  HttpRequest& request = incoming->head;
  http10_ = parser.version() < 11;
  const bool close = http10_ || !parser.keep_alive();
  const uint64_t exchange = BeginExchange(close);
  auto memory = std::make_shared<MemoryLease>(std::move(parser.lease()));
  const uint64_t bytes = HeadBytes(request) + memory->bytes();
  const bool fits = memory->TryResize(bytes);
  auto writer = std::make_shared<Writer>(shared_from_this(), exchange, request, http10_,
                                         close || !parser.is_done(), memory);
  request.body = std::move(parser.body());
  request.memory = std::move(memory);
  recorded_.body_bytes = request.body.size();
  received_.Shrink(in_.size());
  if (!incoming->early && !fits) return writer->SendRefusal(bytes);
  if (incoming->early) return writer->Send(std::move(*incoming->early));
  core_->handler->Handle(std::move(request), std::move(writer));
}

void Connection::Refuse(int status, const std::string& message) {
  const uint64_t exchange = BeginExchange(true);
  SetStatus(exchange, status, true);
  const std::string target = incoming_ != nullptr ? incoming_->parser.target() : "";
  Free(in_);
  incoming_.reset();
  received_.Shrink(0);
  const bool plain = status == 400;
  const std::string body =
      plain ? message : core_->handler->ErrorBody(target, status, HttpReason(status), message);
  SetErrorBody(exchange, body);
  HttpResponse head;
  head.status = status;
  if (plain) head.content_type = "text/plain; charset=utf-8";
  if (status == 503) head.headers.push_back({"retry-after", "1"});
  const std::string framing = fmt::format("content-length: {}\r\n", body.size());
  Append(exchange, ResponseHead(head, {}, framing, /*close=*/true) + body, body.size(), true);
}

}  // namespace

std::shared_ptr<HttpConnection> MakeHttpConnection(std::shared_ptr<HttpCore> core, HttpIoThread* io,
                                                   HttpStream::Socket socket) {
  return std::make_shared<Connection>(std::move(core), io, std::move(socket));
}

}  // namespace sluice
