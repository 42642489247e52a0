#include "events/event_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "events/block_hash.h"

namespace sluice {
namespace {

constexpr std::string_view kOption = "kv-events-config";
constexpr int64_t kMostBatches = 1000000;

constexpr std::array<std::string_view, 8> kKeys = {
    "enable_kv_cache_events", "publisher", "endpoint",       "replay_endpoint",
    "buffer_steps",           "hwm",       "max_queue_size", "topic"};

tl::unexpected<Error> BadSetting(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("--{}: {}", kOption, message),
              std::string(kOption));
}

// Returns the port after the last colon; nullopt if there is no number.
std::optional<int64_t> PortOf(std::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  int64_t port = 0;
  const char* const end = endpoint.data() + endpoint.size();
  const auto read = std::from_chars(endpoint.data() + colon + 1, end, port);
  if (colon == std::string_view::npos || read.ec != std::errc() || read.ptr != end) return {};
  return port;
}

Status CheckEndpoint(std::string_view key, const std::string& endpoint) {
  if (endpoint.starts_with("ipc://") && endpoint.size() > 6) return {};
  if (endpoint.starts_with("tcp://")) {
    const std::optional<int64_t> port = PortOf(endpoint);
    if (port && *port >= 0 && *port <= 65535) return {};
  }
  return BadSetting(
      fmt::format("{}: expected tcp://ADDRESS:PORT or ipc://FILE, found '{}'", key, endpoint));
}

Status ReadSizes(const JsonFields& fields, CacheEventSettings& settings) {
  struct Size {
    std::string_view key;
    int64_t* value;
  };
  for (const Size& size : {Size{"buffer_steps", &settings.buffer_steps}, Size{"hwm", &settings.hwm},
                           Size{"max_queue_size", &settings.max_queue_size}}) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> given, fields.Integer(size.key, 1, kMostBatches));
    *size.value = given.value_or(*size.value);
  }
  return {};
}

Status ReadTexts(const JsonFields& fields, CacheEventSettings& settings) {
  ASSIGN_OR_RETURN(const std::optional<std::string> endpoint, fields.String("endpoint"));
  settings.endpoint = endpoint.value_or(settings.endpoint);
  ASSIGN_OR_RETURN(const std::optional<std::string> replay, fields.String("replay_endpoint"));
  settings.replay_endpoint = replay.value_or("");
  ASSIGN_OR_RETURN(const std::optional<std::string> topic, fields.String("topic"));
  settings.topic = topic.value_or("");
  RETURN_IF_ERROR(CheckEndpoint("endpoint", settings.endpoint));
  if (!settings.replay_endpoint.empty())
    RETURN_IF_ERROR(CheckEndpoint("replay_endpoint", settings.replay_endpoint));
  if (settings.endpoint == settings.replay_endpoint && PortOf(settings.endpoint) != 0)
    return BadSetting("endpoint and replay_endpoint are the same; choose another port for one");
  return {};
}

Result<std::optional<CacheEventSettings>> Read(const json::Value& object) {
  const JsonFields fields(object, "");
  ASSIGN_OR_RETURN(const std::optional<bool> enabled, fields.Bool("enable_kv_cache_events"));
  ASSIGN_OR_RETURN(const std::optional<std::string> publisher, fields.String("publisher"));
  if (publisher && *publisher != "zmq" && *publisher != "null")
    return BadSetting(fmt::format("publisher: expected zmq or null, found '{}'", *publisher));
  CacheEventSettings settings;
  RETURN_IF_ERROR(ReadSizes(fields, settings));
  RETURN_IF_ERROR(ReadTexts(fields, settings));
  for (const auto& [key, value] : object.as_object()) {
    if (std::ranges::find(kKeys, key) == kKeys.end())
      return BadSetting(
          fmt::format("'{}' is not known; the keys are {}", key, fmt::join(kKeys, ", ")));
  }
  const char* const seed = std::getenv("PYTHONHASHSEED");
  settings.hash_seed = seed == nullptr ? std::string(kDefaultHashSeed) : seed;
  if (!enabled.value_or(false) || publisher.value_or("zmq") == "null") return std::nullopt;
  return settings;
}

}  // namespace

Result<std::optional<CacheEventSettings>> ReadCacheEventSettings(const json::Value& object) {
  auto settings = Read(object);
  if (settings) return settings;
  Error error = std::move(settings).error();
  error.code = ErrorCode::kInvalidArgument;
  if (!error.message.starts_with("--")) {
    error.message = fmt::format("--{}: {}", kOption, error.message);
    error.param = std::string(kOption);
  }
  return tl::unexpected(std::move(error));
}

std::string EndpointOfRank(const std::string& endpoint, int64_t rank) {
  if (endpoint.empty() || rank == 0) return endpoint;
  if (!endpoint.starts_with("tcp://")) return fmt::format("{}_dp{}", endpoint, rank);
  const int64_t port = PortOf(endpoint).value_or(0);
  if (port == 0) return endpoint;
  return fmt::format("{}:{}", endpoint.substr(0, endpoint.rfind(':')), port + rank);
}

}  // namespace sluice
