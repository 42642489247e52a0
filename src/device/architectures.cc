#include "device/architectures.h"

namespace sluice {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool Covers(std::string_view architecture, int major, int minor) {
  int number = 0;
  size_t digits = 0;
  while (digits < architecture.size() && digits < 4 && IsDigit(architecture[digits]))
    number = number * 10 + (architecture[digits++] - '0');
  if (digits < 2) return false;
  // Only CMake's suffix "-real" (no intermediate code) may follow the number and an optional 'a'.
  // Entries with only intermediate code do not count, because this program never compiles it at run
  // time.
  std::string_view rest = architecture.substr(digits);
  const bool is_exact = rest.starts_with('a');
  if (is_exact) rest.remove_prefix(1);
  if (!rest.empty() && rest != "-real") return false;
  if (number / 10 != major) return false;
  return is_exact ? number % 10 == minor : number % 10 <= minor;
}

}  // namespace

bool ArchitecturesCover(std::string_view architectures, int compute_major, int compute_minor) {
  while (!architectures.empty()) {
    const size_t end = architectures.find_first_of(";, ");
    if (Covers(architectures.substr(0, end), compute_major, compute_minor)) return true;
    architectures.remove_prefix(end == std::string_view::npos ? architectures.size() : end + 1);
  }
  return false;
}

}  // namespace sluice
