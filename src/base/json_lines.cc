#include "base/json_lines.h"

#include <algorithm>
#include <string>

#include "base/json_place.h"

namespace sluice::json {

Status ForEachLine(std::string_view text, std::string_view file, const ParseLimits& limits,
                   const std::function<Status(Value value, int64_t line)>& take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    size_t fault = std::string_view::npos;
    Result<Value> value = ParseWithPlace(line, limits, fault);
    Status status = value ? take(*std::move(value), number)
                          : Status(tl::unexpected<Error>(std::move(value).error()));
    if (!status) {
      if (fault != std::string_view::npos)
        status.error().message += " (column " + std::to_string(PlaceOf(line, fault).column) + ")";
      return tl::unexpected<Error>(
          std::move(status).error().In(std::string(file) + ":" + std::to_string(number)));
    }
  }
  return {};
}

}  // namespace sluice::json
