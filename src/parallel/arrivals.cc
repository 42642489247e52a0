#include "parallel/arrivals.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

namespace sluice {

Arrivals::Arrivals(const Listener& listener, size_t num_bytes, std::function<Result<Bytes>()> greet)
    : listener_(listener), num_bytes_(num_bytes), greet_(std::move(greet)) {}

Result<Arrival> Arrivals::Next(SocketTime deadline) {
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.deadline <= now; });
    const SocketTime first = waiting_.empty() ? deadline : waiting_.front().deadline;
    std::vector<pollfd> polled{{listener_.socket.get(), POLLIN, 0}};
    for (const Waiting& waiting : waiting_)
      polled.push_back({waiting.arrival.socket.get(), POLLIN, 0});
    RETURN_IF_ERROR(PollBy(polled, std::min(first, deadline), deadline, "waiting for a rank"));
    for (size_t i = polled.size() - 1; i >= 1; --i) {
      if (polled[i].revents == 0) continue;
      const auto place = waiting_.begin() + static_cast<ptrdiff_t>(i) - 1;
      const bool lives = Receive(place->arrival);
      if (lives && place->arrival.received.size() < num_bytes_) continue;
      Arrival arrival = std::move(place->arrival);
      waiting_.erase(place);
      if (lives) return arrival;
    }
    if (polled[0].revents != 0) RETURN_IF_ERROR(Accept());
  }
}

Status Arrivals::Accept() {
  ASSIGN_OR_RETURN(OwnedFd socket, AcceptNow(listener_));
  if (!socket) return {};
  Waiting waiting;
  waiting.arrival.address = PeerAddress(socket);
  waiting.deadline = std::chrono::steady_clock::now() + kPatience;
  if (greet_) {
    ASSIGN_OR_RETURN(waiting.arrival.greeting, greet_());
    // Never waits, because the send buffer of a new connection has room for the greeting.
    if (!SendAllBy(socket, waiting.arrival.greeting, std::chrono::steady_clock::now())) return {};
  }
  waiting.arrival.socket = std::move(socket);
  const auto is_of_address = [&](const Waiting& other) {
    return other.arrival.address == waiting.arrival.address;
  };
  if (std::count_if(waiting_.begin(), waiting_.end(), is_of_address) >=
      static_cast<ptrdiff_t>(kMostOfAddress)) {
    waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(), is_of_address));
  } else if (waiting_.size() >= kMost) {
    EndOldest();
  }
  waiting_.push_back(std::move(waiting));
  return {};
}

void Arrivals::EndOldest() {
  std::map<std::string, size_t> counts;
  for (const Waiting& waiting : waiting_) ++counts[waiting.arrival.address];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    return waiting.arrival.address == most->first;
  }));
}

bool Arrivals::Receive(Arrival& arrival) const {
  while (arrival.received.size() < num_bytes_) {
    const size_t had = arrival.received.size();
    arrival.received.resize(num_bytes_);
    const ssize_t count =
        recv(arrival.socket.get(), arrival.received.data() + had, num_bytes_ - had, MSG_DONTWAIT);
    const int error = errno;
    arrival.received.resize(had + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count > 0 || (count < 0 && error == EINTR)) continue;
    return count < 0 && error == EAGAIN;
  }
  return true;
}

}  // namespace sluice
