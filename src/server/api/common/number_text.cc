#include "server/api/common/number_text.h"

#include <charconv>
#include <limits>
#include <string>
#include <system_error>

#include "base/ascii.h"

namespace sluice {
namespace {

// Removes what std::from_chars does not accept. Returns "" if a '_' or sign is misplaced.
std::string Plain(std::string_view text) {
  text = AsciiTrim(text, " \t\n\r\v\f");
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return {};
  }
  const auto is_digit = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain.push_back(text[i]);
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return {};
    }
  }
  return plain;
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view text) {
  const std::string plain = Plain(text);
  const char* const end = plain.data() + plain.size();
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(plain.data(), end, value);
  if (plain.empty() || stop != end || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    return plain[0] == '-' ? std::numeric_limits<int64_t>::min()
                           : std::numeric_limits<int64_t>::max();
  }
  return value;
}

std::optional<double> ParseNumber(std::string_view text) {
  const std::string plain = Plain(text);
  const char* const end = plain.data() + plain.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(plain.data(), end, value);
  if (plain.empty() || stop != end || error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace sluice
