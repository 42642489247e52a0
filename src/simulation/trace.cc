#include "simulation/trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;

Status ReadRequest(const json::Value& value, std::string_view place, ReplayRequest& request) {
  const JsonFields fields(value, fmt::format("{}: ", place));
  ASSIGN_OR_RETURN(const std::optional<double> timestamp, fields.Number("timestamp", 0, 1e15));
  if (!timestamp) return fields.Missing("timestamp");
  request.arrival = *timestamp / 1e3;
  ASSIGN_OR_RETURN(request.input, fields.RequiredInteger("input_length", 1, kMostTokens));
  ASSIGN_OR_RETURN(request.output, fields.RequiredInteger("output_length", 1, kMostTokens));
  ASSIGN_OR_RETURN(auto ids, fields.Integers("hash_ids", 0, int64_t{1} << 62));
  if (ids) request.hash_ids = *std::move(ids);
  return {};
}

}  // namespace

Result<std::vector<ReplayRequest>> ReadTrace(std::string_view text, std::string_view place,
                                             int64_t most) {
  std::vector<ReplayRequest> requests;
  int64_t number = 0;
  for (std::string_view rest = text; !rest.empty() && std::ssize(requests) < most;) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string here = fmt::format("{}:{}", place, number);
    const auto value = json::Parse(line);
    if (!value || !value->is_object()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: expected a JSON object with timestamp, input_length and "
                              "output_length, found {}",
                              here, value ? ShortText(*value) : value.error().message),
                  "trace");
    }
    ReplayRequest& request = requests.emplace_back();
    RETURN_IF_ERROR(ReadRequest(*value, here, request));
    if (requests.size() > 1 && request.arrival < requests[requests.size() - 2].arrival) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: timestamp {:g} is before that of the request before", here,
                              1e3 * request.arrival),
                  "trace");
    }
  }
  if (requests.empty())
    return Fail(ErrorCode::kInvalidData, fmt::format("{}: no requests", place), "trace");
  const double first = requests.front().arrival;
  for (ReplayRequest& request : requests) request.arrival -= first;
  return requests;
}

void SetRate(double rate, std::vector<ReplayRequest>& requests) {
  double now = 0;
  uint64_t state = 0;
  for (ReplayRequest& request : requests) {
    request.arrival = now;
    state += 0x9E3779B97F4A7C15u;
    uint64_t value = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    const double even = (static_cast<double>((value ^ (value >> 31)) >> 11) + 1) * 0x1p-53;
    now -= std::log(even) / rate;
  }
}

}  // namespace sluice
