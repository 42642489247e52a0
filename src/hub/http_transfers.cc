#include "hub/http_transfers.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <filesystem>
#include <list>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/check.h"

namespace sluice {
namespace {

constexpr long kReceiveBytes = 512 * 1024;
constexpr size_t kMaxHeaders = 200;

// Looks for the trusted certificate authorities in the usual places of Linux distributions, because
// libcurl may have been built for another distribution.
std::string SystemCertificates() {
  constexpr std::array<const char*, 4> kPlaces = {"/etc/ssl/certs/ca-certificates.crt",
                                                  "/etc/pki/tls/certs/ca-bundle.crt",
                                                  "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
  for (const char* place : kPlaces) {
    std::error_code error;
    if (std::filesystem::exists(place, error)) return place;
  }
  return "";
}

bool IsCertain(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_URL_MALFORMAT ||
         code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY;
}

}  // namespace

std::string_view HttpHead::Find(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

std::string OriginOf(std::string_view url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
  const std::string text(url);
  if (curl_url_set(parsed.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return "";
  const auto part = [&](CURLUPart which) {
    char* value = nullptr;
    if (curl_url_get(parsed.get(), which, &value, CURLU_DEFAULT_PORT) != CURLUE_OK)
      return std::string();
    std::string copy(value);
    curl_free(value);
    return AsciiLower(copy);
  };
  const std::string scheme = part(CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return "";
  return fmt::format("{}://{}:{}", scheme, part(CURLUPART_HOST), part(CURLUPART_PORT));
}

class HttpTransfers::Impl {
 public:
  explicit Impl(Settings settings) : settings_(std::move(settings)) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    CHECK(ready == CURLE_OK, "libcurl: {}", curl_easy_strerror(ready));
    multi_ = curl_multi_init();
    CHECK(multi_ != nullptr, "libcurl: no memory");
    if (settings_.certificates.empty()) settings_.certificates = SystemCertificates();
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &old_sigpipe_);
  }
  ~Impl() {
    CancelAll();
    curl_multi_cleanup(multi_);
    ::sigaction(SIGPIPE, &old_sigpipe_, nullptr);
  }

  void Start(TransferRequest request, std::function<void(HttpOutcome)> on_done) {
    Transfer& transfer = transfers_.emplace_back();
    transfer.place = std::prev(transfers_.end());
    transfer.request = std::move(request);
    transfer.on_done = std::move(on_done);
    transfer.easy = curl_easy_init();
    CHECK(transfer.easy != nullptr, "libcurl: no memory");
    Prepare(transfer);
    curl_multi_add_handle(multi_, transfer.easy);
  }

  void Wait(int milliseconds) {
    int running = 0;
    curl_multi_perform(multi_, &running);
    if (!Finish()) {
      curl_multi_poll(multi_, nullptr, 0, milliseconds, nullptr);
      curl_multi_perform(multi_, &running);
      Finish();
    }
  }

  void CancelAll() {
    while (!transfers_.empty()) Remove(transfers_.front());
  }

 private:
  struct Transfer {
    std::list<Transfer>::iterator place;
    TransferRequest request;
    std::function<void(HttpOutcome)> on_done;
    CURL* easy = nullptr;
    curl_slist* headers = nullptr;
    HttpOutcome outcome;
    bool told_head = false;
    // The exception that a callback threw. It must not pass through libcurl, which would leak
    // memory.
    std::exception_ptr thrown = nullptr;
    std::array<char, CURL_ERROR_SIZE> message = {};
  };

  void Prepare(Transfer& transfer) {
    const TransferRequest& request = transfer.request;
    const auto set = [&](CURLoption option, auto value) {
      curl_easy_setopt(transfer.easy, option, value);
    };
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PRIVATE, &transfer);
    set(CURLOPT_ERRORBUFFER, transfer.message.data());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FOLLOWLOCATION, 0L);
    // Uses one connection per transfer: parallel ranges over a shared connection would be no
    // faster.
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_BUFFERSIZE, kReceiveBytes);
    set(CURLOPT_USERAGENT, "sluice");
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings_.timeout_seconds));
    set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kSlowestBytesPerSecond));
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings_.timeout_seconds));
    std::error_code error;
    if (std::filesystem::is_directory(settings_.certificates, error)) {
      set(CURLOPT_CAINFO, nullptr);
      set(CURLOPT_CAPATH, settings_.certificates.c_str());
    } else if (!settings_.certificates.empty()) {
      set(CURLOPT_CAINFO, settings_.certificates.c_str());
    }
    // libcurl reads no_proxy, but ignores HTTP_PROXY, because clients of a CGI server could set it.
    if (!settings_.http_proxy.empty() && AsciiLower(request.url).starts_with("http:"))
      set(CURLOPT_PROXY, settings_.http_proxy.c_str());
    if (request.head_only) set(CURLOPT_NOBODY, 1L);
    const auto add = [&](const std::string& line) {
      transfer.headers = curl_slist_append(transfer.headers, line.c_str());
    };
    add("Accept-Encoding: identity");
    if (!request.token.empty()) add("Authorization: Bearer " + request.token);
    if (request.range_begin >= 0) {
      add(fmt::format("Range: bytes={}-{}", request.range_begin,
                      request.range_end < 0 ? "" : std::to_string(request.range_end - 1)));
    }
    set(CURLOPT_HTTPHEADER, transfer.headers);
    set(CURLOPT_HEADERFUNCTION, &Impl::OnHeader);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, &Impl::OnBody);
    set(CURLOPT_WRITEDATA, &transfer);
  }

  static size_t OnHeader(char* data, size_t, size_t size, void* user) {
    Transfer& transfer = *static_cast<Transfer*>(user);
    try {
      AddHeader(transfer.outcome.head, AsciiTrim({data, size}));
    } catch (...) {
      transfer.thrown = std::current_exception();
      return size == 0 ? 1 : 0;  // any result other than `size` is an error for libcurl
    }
    return size;
  }

  static void AddHeader(HttpHead& head, std::string_view line) {
    if (line.starts_with("HTTP/"))
      head.headers.clear();  // drops the headers of a proxy or a 1xx
                             // response
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || head.headers.size() >= kMaxHeaders) return;
    head.headers.emplace_back(AsciiLower(line.substr(0, colon)), AsciiTrim(line.substr(colon + 1)));
  }

  static bool TellHead(Transfer& transfer) {
    if (transfer.told_head) return true;
    transfer.told_head = true;
    long status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    transfer.outcome.head.status = static_cast<int>(status);
    return !transfer.request.on_head || transfer.request.on_head(transfer.outcome.head);
  }

  static size_t OnBody(char* data, size_t, size_t size, void* user) {
    Transfer& transfer = *static_cast<Transfer*>(user);
    try {
      if (TellHead(transfer) &&
          (!transfer.request.on_body || transfer.request.on_body({data, size})))
        return size;
    } catch (...) {
      transfer.thrown = std::current_exception();
    }
    transfer.outcome.ended_by_caller = true;
    return size == 0 ? 1 : 0;  // any result other than `size` is an error for libcurl
  }

  void Remove(Transfer& transfer) {
    curl_multi_remove_handle(multi_, transfer.easy);
    curl_easy_cleanup(transfer.easy);
    curl_slist_free_all(transfer.headers);
    transfers_.erase(transfer.place);
  }

  // For a certificate error: returns a note that names the source of the trusted certificate
  // authorities.
  std::string AboutCertificates(CURL* easy, CURLcode code) const {
    if (code == CURLE_SSL_CACERT_BADFILE)
      return " (SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names it)";
    long verified = 0;  // 1: the chain was not checked, because the host name differs
    curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &verified);
    if (code != CURLE_PEER_FAILED_VERIFICATION || verified <= 1) return "";
    return fmt::format(" (the authorities in {} are trusted; SSL_CERT_FILE names another file)",
                       settings_.certificates.empty() ? "libcurl" : settings_.certificates);
  }

  // Calls on_done of the transfers that have ended. Returns false if there were none.
  bool Finish() {
    bool any = false;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      any = true;
      const CURLcode code = message->data.result;
      void* user = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
      Transfer& transfer = *static_cast<Transfer*>(user);
      if (transfer.thrown != nullptr) {
        const std::exception_ptr thrown = transfer.thrown;
        Remove(transfer);
        std::rethrow_exception(thrown);
      }
      HttpOutcome& outcome = transfer.outcome;
      if (code == CURLE_OK && !TellHead(transfer)) outcome.ended_by_caller = true;
      if (code != CURLE_OK && !outcome.ended_by_caller) {
        outcome.problem =
            transfer.message[0] != 0 ? transfer.message.data() : curl_easy_strerror(code);
        outcome.problem += AboutCertificates(transfer.easy, code);
        outcome.slow = code == CURLE_OPERATION_TIMEDOUT;
        outcome.certain = IsCertain(code);
      }
      char* redirect = nullptr;
      curl_easy_getinfo(transfer.easy, CURLINFO_REDIRECT_URL, &redirect);
      if (redirect != nullptr) outcome.redirect = redirect;
      curl_off_t retry = 0;
      curl_easy_getinfo(transfer.easy, CURLINFO_RETRY_AFTER, &retry);
      if (!outcome.head.Find("retry-after").empty()) outcome.retry_after_seconds = retry;
      const auto on_done = std::move(transfer.on_done);
      HttpOutcome ended = std::move(outcome);
      Remove(transfer);
      on_done(std::move(ended));
    }
    return any;
  }

  Settings settings_;
  CURLM* multi_ = nullptr;
  std::list<Transfer> transfers_;
  struct sigaction old_sigpipe_ {};
};

HttpTransfers::HttpTransfers(Settings settings)
    : impl_(std::make_unique<Impl>(std::move(settings))) {}

HttpTransfers::~HttpTransfers() = default;

void HttpTransfers::Start(TransferRequest request, std::function<void(HttpOutcome)> on_done) {
  impl_->Start(std::move(request), std::move(on_done));
}

void HttpTransfers::Wait(int milliseconds) {
  impl_->Wait(milliseconds);
}

HttpOutcome HttpTransfers::Perform(TransferRequest request) {
  std::optional<HttpOutcome> outcome;
  impl_->Start(std::move(request), [&](HttpOutcome ended) { outcome = std::move(ended); });
  while (!outcome) impl_->Wait(1000);
  return *std::move(outcome);
}

void HttpTransfers::CancelAll() {
  impl_->CancelAll();
}

}  // namespace sluice
