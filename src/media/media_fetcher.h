// Images by http(s) URL, for clients that are not trusted: which hosts are asked, which addresses
// are connected to, how long it takes and how much comes is bounded, and nothing of this machine is
// sent along.
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
  // Hosts that may be asked: names or addresses as URLs have them, in lower case; "*" stands for
  // all hosts with public addresses. A host that is listed by itself may have a private address.
  // Empty: nothing is fetched.
  std::vector<std::string> hosts;
  double timeout_seconds = 5;  // of one image, redirects included
  uint64_t max_bytes = uint64_t{64} << 20;
  int max_redirects = 5;
  int threads = 4;
};

// Asked before an answer of that many bytes, so far, is kept; false ends the fetch with
// kResourceExhausted.
using ReserveBytes = std::function<bool(uint64_t)>;

// What was fetched, by URL.
using FetchedMedia = std::map<std::string, Result<std::string>, std::less<>>;

// Thread safety: all methods may be called from any thread. No proxies are used, so that the check
// of addresses holds.
class MediaFetcher {
 public:
  explicit MediaFetcher(MediaFetchConfig config);
  ~MediaFetcher();
  MediaFetcher(const MediaFetcher&) = delete;
  MediaFetcher& operator=(const MediaFetcher&) = delete;

  // The bytes at `url`, on the calling thread. kInvalidArgument: a host, an address or a redirect
  // that is not allowed, a status other than 200, too many bytes, too much time, no connection.
  Result<std::string> Fetch(const std::string& url, const ReserveBytes& reserve) const;

  // Fetches each URL once, one after another, on a thread of its own; `done` is called there.
  // `reserve` is asked for the sum. Dropped once Stop() was called. The number of calls is bounded
  // by the callers.
  void Submit(std::vector<std::string> urls, ReserveBytes reserve,
              std::function<void(FetchedMedia)> done);
  // Ends what is in progress and joins the threads.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether an IPv4 or IPv6 address, as inet_pton reads it, is one of the public internet: not of
// this machine, a private network, a link, a test range, multicast, or one of these inside IPv6.
// False for text that is no address.
bool IsPublicAddress(const std::string& address);

}  // namespace sluice
