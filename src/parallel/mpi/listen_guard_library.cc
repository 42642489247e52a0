// Loaded in front of mpirun, its daemons and the ranks that these start (LD_PRELOAD). Open MPI 4
// listens at all addresses, whatever network it is told to use; here a bind to all addresses
// becomes a bind to the one that SLUICE_LISTEN_ADDRESS names, and for IPv6 to the loopback. Reads
// nothing else and is linked with nothing but the C library.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<bool> g_is_over{false};

}  // namespace

extern "C" {

// For a rank whose MPI has started: from here on the process binds as it likes.
__attribute__((visibility("default"))) void sluice_end_listen_guard() {
  g_is_over = true;
}

__attribute__((visibility("default"))) int bind(int fd, const sockaddr* address,
                                                socklen_t length) noexcept {
  const char* const only = g_is_over ? nullptr : std::getenv("SLUICE_LISTEN_ADDRESS");
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (only != nullptr && length == sizeof(v4) && address->sa_family == AF_INET) {
    std::memcpy(&v4, address, sizeof(v4));
    if (v4.sin_addr.s_addr == htonl(INADDR_ANY)) {
      inet_pton(AF_INET, only, &v4.sin_addr);
      address = reinterpret_cast<const sockaddr*>(&v4);
    }
  } else if (only != nullptr && length >= sizeof(v6) && address->sa_family == AF_INET6) {
    std::memcpy(&v6, address, sizeof(v6));
    if (std::memcmp(&v6.sin6_addr, &in6addr_any, sizeof(in6addr_any)) == 0) {
      v6.sin6_addr = in6addr_loopback;
      address = reinterpret_cast<const sockaddr*>(&v6);
      length = sizeof(v6);
    }
  }
  return static_cast<int>(syscall(SYS_bind, fd, address, length));
}

}  // extern "C"
