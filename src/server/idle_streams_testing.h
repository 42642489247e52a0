// For tests and benchmarks: an engine that never ends an answer, and clients that hold streams
// open.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/mutex.h"
#include "engine/engine.h"

namespace sluice {

// Answers each request immediately with one token and nothing more. Keeps only the sink of a
// request, so that only the server's memory is measured. Thread safety: any thread.
class HoldingEngine : public Engine {
 public:
  explicit HoldingEngine(int64_t vocab_size = 512) {
    info_.model.vocab_size = vocab_size;
    info_.max_model_len = 4096;
    info_.request_memory_bytes = int64_t{1} << 30;
  }

  const EngineInfo& info() const override { return info_; }
  Result<RequestHandle> Submit(Request request) override {
    request.sink->OnPrompt({});
    SequenceUpdate update;
    update.tokens.push_back(10);
    request.sink->OnUpdate(std::move(update));
    const MutexLock lock(mutex_);
    sinks_.push_back(std::move(request.sink));
    return sinks_.size();
  }
  void Abort(RequestHandle handle) override {
    std::shared_ptr<RequestSink> sink;
    const MutexLock lock(mutex_);
    sink.swap(sinks_[handle - 1]);
  }
  void StopSequence(RequestHandle, int) override {}
  bool healthy() const override { return true; }
  int64_t num_unfinished() const override { return 0; }
  void BeginShutdown() override {}
  bool ResetPrefixCache() override { return true; }

 private:
  EngineInfo info_;
  Mutex mutex_;
  std::vector<std::shared_ptr<RequestSink>> sinks_ GUARDED_BY(mutex_);
};

// The client side of chat streams, each requested as the openai package does, with `words` words in
// the message. When Open() returns, each stream has received its first token. Thread safety: one
// thread.
class IdleStreams {
 public:
  explicit IdleStreams(uint16_t port, int words = 12) : port_(port) {
    std::string text = "The";
    for (int i = 1; i < words; ++i) text += " beads";
    const std::string body =
        fmt::format(R"({{"messages":[{{"role":"system","content":"You count beads."}},)"
                    R"({{"role":"user","content":"{}"}}],"model":"abacus","max_tokens":1000,)"
                    R"("stream":true,"stream_options":{{"include_usage":true}}}})",
                    text);
    request_ = fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAccept-Encoding: gzip, "
        "deflate\r\n"
        "Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
        "User-Agent: OpenAI/Python 1.109.1\r\nX-Stainless-Lang: python\r\n"
        "X-Stainless-Package-Version: 1.109.1\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\n"
        "X-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.11.2\r\n"
        "Authorization: Bearer EMPTY\r\nX-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\n"
        "x-stainless-read-timeout: 600\r\nContent-Length: {}\r\n\r\n{}",
        port, body.size(), body);
  }
  ~IdleStreams() {
    for (const int file : files_) close(file);
  }
  IdleStreams(const IdleStreams&) = delete;
  IdleStreams& operator=(const IdleStreams&) = delete;

  void Open(int count) {
    constexpr int kAtOnce = 100;
    for (int done = 0; done < count; done += kAtOnce) {
      const size_t first = files_.size();
      for (int i = done; i < std::min(count, done + kAtOnce); ++i) files_.push_back(Ask());
      for (size_t i = first; i < files_.size(); ++i) AwaitToken(files_[i]);
    }
  }

 private:
  int Ask() const {
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(file >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{60, 0};
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    CHECK(connect(file, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(send(file, request_.data(), request_.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request_.size()));
    return file;
  }
  // The first event of a chat contains its role, the second its first token.
  static void AwaitToken(int file) {
    std::string all;
    while (CountEvents(all) < 2) {
      char buffer[4096];
      const ssize_t size = recv(file, buffer, sizeof buffer, 0);
      CHECK(size > 0);
      all.append(buffer, static_cast<size_t>(size));
    }
    CHECK(all.starts_with("HTTP/1.1 200"));
  }
  static int CountEvents(std::string_view text) {
    int count = 0;
    for (size_t at = 0; (at = text.find("}\n\n", at)) != std::string_view::npos; ++at) ++count;
    return count;
  }

  const uint16_t port_;
  std::string request_;
  std::vector<int> files_;
};

}  // namespace sluice
