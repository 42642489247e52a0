#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

#include "media/media_fetcher.h"

namespace sluice {
namespace {

struct Ipv4Range {
  uint32_t first;
  int bits;
};

// Ranges that are not public, from RFC 6890 and its registry.
constexpr Ipv4Range kSpecial[] = {
    {0x00000000, 8},   // this network
    {0x0A000000, 8},   // private
    {0x64400000, 10},  // shared by carriers
    {0x7F000000, 8},   // loopback
    {0xA9FE0000, 16},  // link-local, cloud metadata services
    {0xAC100000, 12},  // private
    {0xC0000000, 24},  // protocol assignments
    {0xC0000200, 24},  // documentation
    {0xC0586300, 24},  // 6to4 relays
    {0xC0A80000, 16},  // private
    {0xC6120000, 15},  // benchmarks
    {0xC6336400, 24},  // documentation
    {0xCB007100, 24},  // documentation
    {0xE0000000, 4},   // multicast
    {0xF0000000, 4},   // reserved, broadcast
};

bool IsPublicIpv4(uint32_t address) {
  for (const Ipv4Range& range : kSpecial) {
    if ((address ^ range.first) >> (32 - range.bits) == 0) return false;
  }
  return true;
}

uint32_t Ipv4At(const std::array<uint8_t, 16>& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 |
         bytes[at + 3];
}

bool IsPublicIpv6(const std::array<uint8_t, 16>& bytes) {
  const uint32_t first = Ipv4At(bytes, 0);
  const bool starts_with_zeros = first == 0 && Ipv4At(bytes, 4) == 0;
  // Checks IPv4 addresses that are embedded in IPv6: mapped, translated, 6to4.
  if (starts_with_zeros && Ipv4At(bytes, 8) == 0x0000FFFF) return IsPublicIpv4(Ipv4At(bytes, 12));
  if (first == 0x0064FF9B)
    return Ipv4At(bytes, 4) == 0 && Ipv4At(bytes, 8) == 0 && IsPublicIpv4(Ipv4At(bytes, 12));
  if (first >> 16 == 0x2002) return IsPublicIpv4(Ipv4At(bytes, 2));
  // Global unicast is 2000::/3, except Teredo and other assignments, and documentation.
  if (first >> 29 != 1) return false;
  if (first >> 9 == 0x20010000 >> 9) return false;  // 2001::/23
  return first != 0x20010DB8 && first >> 12 != 0x3FFF0000 >> 12;
}

}  // namespace

bool IsPublicAddress(const std::string& address) {
  in_addr four{};
  if (inet_pton(AF_INET, address.c_str(), &four) == 1) return IsPublicIpv4(ntohl(four.s_addr));
  std::array<uint8_t, 16> six{};
  return inet_pton(AF_INET6, address.c_str(), six.data()) == 1 && IsPublicIpv6(six);
}

}  // namespace sluice
