#include "constraints/string_formats.h"

#include <algorithm>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr std::string_view kFormats[] = {"date",         "date-time",    "duration",
                                         "email",        "hostname",     "ipv4",
                                         "ipv6",         "json-pointer", "relative-json-pointer",
                                         "time",         "uri",          "uri-reference",
                                         "uri-template", "uuid"};

// Returns a pattern of the valid days of the years 0001 to 9999 in the Gregorian calendar.
std::string DatePattern() {
  const char* const year = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
  const char* const leap_year =
      "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";
  return fmt::format(
      "({}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
      "02-(0[1-9]|1[0-9]|2[0-8]))|{}-02-29)",
      year, leap_year);
}

// Leaves out leap seconds, which most parsers reject, and fractions of more than six digits.
constexpr std::string_view kTime =
    R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
constexpr std::string_view kIpv4 =
    R"(((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]))";

std::string Ipv6Pattern() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string pattern = fmt::format("(({0}:){{7}}{0}|({0}:){{6}}{1}", group, kIpv4);
  // "::" follows `before` groups, and replaces at least one of the eight groups.
  for (int before = 0; before <= 7; ++before) {
    const std::string head = before == 0   ? std::string(":")
                             : before == 1 ? group + ":"
                                           : fmt::format("({0}:){{{1}}}", group, before);
    const int most_after = 7 - before;
    pattern += fmt::format("|{}(:", head);
    if (most_after > 1) {
      pattern += fmt::format("|(:{}){{1,{}}}", group, most_after);
    } else if (most_after == 1) {
      pattern += fmt::format("|:{}", group);
    }
    // An IPv4 address may replace the last two groups.
    if (most_after >= 2) pattern += fmt::format("|(:{}){{0,{}}}:{}", group, most_after - 2, kIpv4);
    pattern += ")";
  }
  return pattern + ")";
}

}  // namespace

std::span<const std::string_view> KnownFormats() {
  return kFormats;
}

bool IsKnownFormat(std::string_view format) {
  return std::ranges::find(kFormats, format) != std::end(kFormats);
}

std::optional<std::string> PatternOfFormat(std::string_view format) {
  if (format == "date") return fmt::format("^{}$", DatePattern());
  if (format == "time") return fmt::format("^{}$", kTime);
  if (format == "date-time") return fmt::format("^{}T{}$", DatePattern(), kTime);
  if (format == "ipv4") return fmt::format("^{}$", kIpv4);
  if (format == "ipv6") return fmt::format("^{}$", Ipv6Pattern());
  return std::nullopt;
}

}  // namespace sluice
