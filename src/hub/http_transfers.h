// Makes HTTP requests to a hub with libcurl, several at a time. Redirects are returned, not
// followed: the caller decides which data may be sent to which host.
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

  // Returns the value of a header, "" if absent. `name`: in lower case.
  std::string_view Find(std::string_view name) const;
};

struct TransferRequest {
  std::string url;
  bool head_only = false;
  std::string token = "";    // sent as Authorization: Bearer; "": none
  int64_t range_begin = -1;  // offset of the first requested byte; negative: from the start
  int64_t range_end = -1;    // end of the requested bytes, exclusive; negative: to the end
  // on_head is called once before the body, on_body for each part of it. Returning false ends the
  // transfer.
  std::function<bool(const HttpHead&)> on_head = nullptr;
  std::function<bool(std::string_view)> on_body = nullptr;
};

// Minimum speed of a transfer, averaged over Settings::timeout_seconds. A slower sender could block
// a download forever.
inline constexpr int64_t kSlowestBytesPerSecond = 1024;

struct HttpOutcome {
  HttpHead head;
  std::string problem = "";  // why there is no complete response; "" if there is one
  bool ended_by_caller = false;
  bool slow = false;          // whether the transfer was slower than kSlowestBytesPerSecond
  bool certain = false;       // whether a retry would also fail: a bad certificate or address
  std::string redirect = "";  // absolute URL of a 3xx response
  std::optional<int64_t> retry_after_seconds = std::nullopt;
};

// Thread safety: one thread. While an instance exists, writing to a closed connection raises no
// SIGPIPE.
class HttpTransfers {
 public:
  struct Settings {
    int timeout_seconds = 10;       // time limit for connecting, and for transfers below
                                    // kSlowestBytesPerSecond
    std::string certificates = "";  // file or folder with the trusted certificate authorities; "":
                                    // the system's
    std::string http_proxy = "";    // proxy for http URLs; libcurl reads the other proxy variables
                                    // itself
  };
  explicit HttpTransfers(Settings settings);
  ~HttpTransfers();
  HttpTransfers(const HttpTransfers&) = delete;
  HttpTransfers& operator=(const HttpTransfers&) = delete;

  // Starts a transfer. A later Wait() calls `on_done`, which may start other transfers.
  void Start(TransferRequest request, std::function<void(HttpOutcome)> on_done);
  // Transfers data for at most `milliseconds`, or until a transfer makes progress.
  void Wait(int milliseconds);
  // Performs one request and waits for it. Other transfers continue meanwhile.
  HttpOutcome Perform(TransferRequest request);
  // Ends all transfers without calling back.
  void CancelAll();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns "https://host:port" for a URL, in lower case, always with the port; "" if it is not an
// http(s) URL.
std::string OriginOf(std::string_view url);

}  // namespace sluice
