// Fetches images by http(s) URL for untrusted clients. Hosts, addresses, time and size are limited,
// and no data of this machine is sent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct MediaFetchConfig {
  // Allowed hosts: names or addresses as in URLs, in lower case; "*" allows all hosts with public
  // addresses. A host that is listed explicitly may have a private address. Empty: nothing is
  // fetched.
  std::vector<std::string> hosts;
  double timeout_seconds = 5;  // per image, including redirects
  uint64_t max_bytes = uint64_t{64} << 20;
  int max_redirects = 5;
  int threads = 4;
};

// Called before a response is stored, with its number of bytes so far. Returning false ends the
// fetch with kResourceExhausted.
using ReserveBytes = std::function<bool(uint64_t)>;

// Results by URL.
using FetchedMedia = std::map<std::string, Result<std::string>, std::less<>>;

// Thread safety: all methods may be called from any thread. Uses no proxies, which would bypass the
// check of addresses.
class MediaFetcher {
 public:
  explicit MediaFetcher(MediaFetchConfig config);
  ~MediaFetcher();
  MediaFetcher(const MediaFetcher&) = delete;
  MediaFetcher& operator=(const MediaFetcher&) = delete;

  // Returns the bytes at `url`; runs on the calling thread. kInvalidArgument for a host, address or
  // redirect that is not allowed, a status other than 200, too many bytes, a timeout, or no
  // connection.
  Result<std::string> Fetch(const std::string& url, const ReserveBytes& reserve) const;

  // Fetches each URL once, one after another, on a background thread, which then calls `done`.
  // `reserve` is called with the sum over all URLs. Does nothing after Stop(). Callers limit the
  // number of calls.
  void Submit(std::vector<std::string> urls, ReserveBytes reserve,
              std::function<void(FetchedMedia)> done);
  // Aborts fetches in progress and joins the threads.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns whether an IPv4 or IPv6 address, in inet_pton's format, is on the public internet. False
// for loopback, private, link-local, test, multicast and reserved addresses, for any of these
// embedded in an IPv6 address, and for invalid addresses.
bool IsPublicAddress(const std::string& address);

}  // namespace sluice
