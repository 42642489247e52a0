// HTTP requests to a hub, several at a time, by libcurl. Redirects are told, not followed: who asks
// decides what may be sent where.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

struct HttpHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case

  // The value of a header, its name in lower case; "" where there is none.
  std::string_view Find(std::string_view name) const;
};

struct TransferRequest {
  std::string url;
  bool head_only = false;
  std::string token = "";    // sent as Authorization: Bearer, where not empty
  int64_t range_begin = -1;  // asks for the bytes from here, where not negative
  int64_t range_end = -1;    // and before here, where not negative
  // Called once before the body, and with its parts. False ends the transfer.
  std::function<bool(const HttpHead&)> on_head = nullptr;
  std::function<bool(std::string_view)> on_body = nullptr;
};

// What a transfer has to bring a second, over Settings::timeout_seconds: who sends less holds up a
// download for ever. A modem brings five times as much.
inline constexpr int64_t kSlowestBytesPerSecond = 1024;

struct HttpOutcome {
  HttpHead head;
  std::string problem = "";  // why there is no whole answer: "" if there is
  bool ended_by_caller = false;
  bool slow = false;     // it brought less than kSlowestBytesPerSecond, or nothing
  bool certain = false;  // another attempt would fail likewise: a bad certificate, a bad address
  std::string redirect = "";  // the absolute address that a 3xx names
  std::optional<int64_t> retry_after_seconds = std::nullopt;
};

// Thread safety: one thread. While one exists, writes to closed connections raise no SIGPIPE.
class HttpTransfers {
 public:
  struct Settings {
    int timeout_seconds = 10;       // to connect, and below kSlowestBytesPerSecond
    std::string certificates = "";  // trusted authorities, a file or a folder; "" for the system's
    std::string http_proxy = "";    // for http addresses; libcurl reads the other variables itself
  };
  explicit HttpTransfers(Settings settings);
  ~HttpTransfers();
  HttpTransfers(const HttpTransfers&) = delete;
  HttpTransfers& operator=(const HttpTransfers&) = delete;

  // Begins a transfer; `on_done` is called in a Wait() that follows, and may start others.
  void Start(TransferRequest request, std::function<void(HttpOutcome)> on_done);
  // Moves bytes for at most `milliseconds`, or until something happened.
  void Wait(int milliseconds);
  // One request from its beginning to its end; others go on meanwhile.
  HttpOutcome Perform(TransferRequest request);
  // Ends all transfers without calling anything.
  void CancelAll();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// "https://host:port" of an address, in lower case, with the port always given; "" for what is no
// http(s) address.
std::string OriginOf(std::string_view url);

}  // namespace sluice
