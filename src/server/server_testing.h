// Test helper: the whole server over sockets, with the tokenizer and template of a small model, and
// a fake engine.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/fake_engine.h"
#include "server/model_context_testing.h"
#include "server/server.h"

namespace sluice {

struct ServerAnswer {
  int status = 0;
  std::string head;
  std::string body;  // chunks joined

  json::Value json() const {
    Result<json::Value> value = json::Parse(body);
    EXPECT_TRUE(value) << body;
    return value ? *value : json::Value();
  }
  // Returns the JSON of all events except [DONE].
  std::vector<json::Value> events() const {
    std::vector<json::Value> result;
    size_t at = 0;
    while ((at = body.find("data: ", at)) != std::string::npos) {
      const size_t end = body.find("\n\n", at);
      const std::string data = body.substr(at + 6, end - at - 6);
      if (data != "[DONE]") result.push_back(*json::Parse(data));
      at = end;
    }
    return result;
  }
};

inline const json::Value& At(const json::Value& value,
                             std::initializer_list<std::string_view> path) {
  static const json::Value kMissing("<missing>");
  const json::Value* current = &value;
  for (const std::string_view key : path) {
    if (current->is_array()) {
      const size_t index = std::stoul(std::string(key));
      if (index >= current->as_array().size()) return kMissing;
      current = &current->as_array()[index];
    } else {
      current = current->Find(key);
      if (current == nullptr) return kMissing;
    }
  }
  return *current;
}

inline std::string Keys(const json::Value& value) {
  std::string keys;
  for (const auto& [key, member] : value.as_object()) keys += key + " ";
  return keys;
}

inline std::string ChunkText(const std::vector<json::Value>& events, int choice = 0) {
  std::string text;
  for (const json::Value& event : events) {
    for (const json::Value& entry : event.Find("choices")->as_array()) {
      if (entry.Find("index")->as_integer() != choice) continue;
      const json::Value* piece = entry.Find("text");
      if (piece == nullptr) piece = entry.Find("delta")->Find("content");
      if (piece != nullptr) text += piece->as_string();
    }
  }
  return text;
}

class TestSocket {
 public:
  explicit TestSocket(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    timeval limit{120, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~TestSocket() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Send(const std::string& text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  }
  std::string Read() {
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
  }
  std::string ReadAll() {
    std::string all;
    for (std::string piece = Read(); !piece.empty(); piece = Read()) all += piece;
    return all;
  }

 private:
  int fd_;
};

class ServerTest : public ::testing::Test {
 protected:
  static ServerConfig DefaultConfig() {
    ServerConfig config;
    config.host = "127.0.0.1";
    config.port = 0;
    config.served_model_names = {"abacus", "other-name"};
    config.model_argument = "models/abacus";
    config.allowed_origins = {};
    config.disable_access_log = true;
    config.version = "1.2.3";
    return config;
  }
  void Start(ServerConfig config = DefaultConfig(), bool attach = true) {
    config_ = config;
    Result<std::unique_ptr<Server>> server = Server::Create(std::move(config));
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    if (attach) Attach();
  }
  void Attach() { ASSERT_TRUE(server_->Attach(&engine_, TestModelText(config_, engine_))); }
  void TearDown() override {
    engine_.End();
    server_.reset();
  }

  static std::string Head(const std::string& method, const std::string& path,
                          const std::string& headers, size_t length) {
    return method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers +
           "Content-Length: " + std::to_string(length) + "\r\n\r\n";
  }
  ServerAnswer Ask(const std::string& method, const std::string& path, const std::string& body = "",
                   const std::string& headers = "") {
    TestSocket socket(server_->port());
    socket.Send(Head(method, path,
                     headers + (body.empty() ? "" : "Content-Type: application/json\r\n"),
                     body.size()) +
                body);
    return Parse(socket.ReadAll());
  }
  static ServerAnswer Parse(const std::string& all) {
    ServerAnswer answer;
    const size_t split = all.find("\r\n\r\n");
    EXPECT_NE(split, std::string::npos) << all;
    if (split == std::string::npos) return answer;
    answer.head = all.substr(0, split + 2);
    answer.status = std::stoi(all.substr(9, 3));
    answer.body = all.substr(split + 4);
    if (answer.head.find("transfer-encoding: chunked") != std::string::npos) {
      std::string joined;
      size_t at = 0;
      while (at < answer.body.size()) {
        const size_t size = std::stoul(answer.body.substr(at), nullptr, 16);
        const size_t begin = answer.body.find("\r\n", at) + 2;
        joined += answer.body.substr(begin, size);
        at = begin + size + 2;
      }
      answer.body = joined;
    }
    return answer;
  }
  ServerAnswer Complete(const std::string& fields) {
    return Ask("POST", "/v1/completions",
               R"({"model":"abacus","prompt":"The abacus counts the beads",)" + fields + "}");
  }
  ServerAnswer Chat(const std::string& fields) {
    return Ask(
        "POST", "/v1/chat/completions",
        R"({"model":"abacus","messages":[{"role":"user","content":"The abacus counts the beads"}],)" +
            fields + "}");
  }
  template <typename Condition>
  bool Eventually(Condition condition) {
    for (int i = 0; i < 12000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  FakeEngine engine_;
  ServerConfig config_;
  std::unique_ptr<Server> server_;
};

}  // namespace sluice
