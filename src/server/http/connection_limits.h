// Limits of sizes and times for one HTTP connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

// A stream whose client reads slowly is paused at `kBacklogHigh` unsent bytes and resumed at
// `kBacklogLow`.
inline constexpr size_t kBacklogHigh = size_t{64} << 10;
inline constexpr size_t kBacklogLow = size_t{16} << 10;
// Maximum bytes of following requests that are read while one is answered (pipelining). The rest
// stays in the socket.
inline constexpr size_t kMaxPipelinedBytes = size_t{64} << 10;
// The body of a refused request is still read if it is at most this large. Without that, the client
// would see a reset instead of the answer.
inline constexpr uint64_t kMaxDiscardedBody = uint64_t{1} << 20;
inline constexpr auto kLinger = std::chrono::seconds(1);
// Approximate size of an answer's head.
inline constexpr size_t kHeadRoom = 1024;
// The interval at which the server probes whether a half-closed client still exists.
inline constexpr auto kProbeInterval = std::chrono::seconds(1);
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
// The status that records show for a client that disconnected before any answer.
inline constexpr int kClientGone = 499;

}  // namespace sluice
