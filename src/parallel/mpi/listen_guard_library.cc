// Loaded into mpirun, its daemons and the ranks they start (LD_PRELOAD). Open MPI 4 listens on all
// addresses, even if configured to use one network. This library turns a bind to all addresses into
// a bind to SLUICE_LISTEN_ADDRESS or, for IPv6, to the loopback. It reads no other setting and
// links only to the C library.
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

// Called in a rank after MPI has started: later binds are not changed.
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
