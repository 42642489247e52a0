// Sizes and times of one HTTP connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

// A stream whose client reads slowly is held back from `kBacklogHigh` unsent bytes until
// `kBacklogLow`.
inline constexpr size_t kBacklogHigh = size_t{64} << 10;
inline constexpr size_t kBacklogLow = size_t{16} << 10;
// Bytes of following requests that are read while one is answered (pipelining); more stay in the
// socket.
inline constexpr size_t kMaxPipelinedBytes = size_t{64} << 10;
// A refused body up to this size is still read, so that the client sees the answer and not a reset.
inline constexpr uint64_t kMaxDiscardedBody = uint64_t{1} << 20;
inline constexpr auto kLinger = std::chrono::seconds(1);
// What an answer's head takes, about.
inline constexpr size_t kHeadRoom = 1024;
// Between two attempts to find out whether a client that has half-closed is still there.
inline constexpr auto kProbeInterval = std::chrono::seconds(1);
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
// Recorded status for a client that disconnected before any answer.
inline constexpr int kClientGone = 499;

}  // namespace sluice
