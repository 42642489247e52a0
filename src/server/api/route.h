// What is known of a route without its code: the table of routes serves the dispatcher, the metrics
// and /openapi.json alike.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/server_config.h"

namespace sluice {

// When a route is there.
enum class RouteGate {
  kAlways,
  kDocs,           // unless --disable-fastapi-docs
  kTokenizerInfo,  // with --enable-tokenizer-info-endpoint
  kDev,            // with VLLM_SERVER_DEV_MODE=1
  kNotVllm,        // a convenience that `vllm serve` does not have
  kTrtllm,         // only where trtllm-serve is answered for
};

struct RouteSpec {
  // A last segment in braces stands for the rest of the path: "/v1/models/{model_id}".
  std::string_view path;
  std::vector<std::string_view> methods;  // empty: any
  RouteGate gate = RouteGate::kAlways;
  std::string_view summary;   // one line; empty: not described in /openapi.json
  std::string_view request;   // the schema of the body; empty: no body
  std::string_view response;  // the schema of the answer; "text" or "html"; empty: any JSON
};

// Whether `config` has the route.
bool IsOpen(RouteGate gate, const ServerConfig& config);
bool Matches(const RouteSpec& route, std::string_view path);

// Why there is nothing at `path`, for {"detail": ...}: names a route of vLLM that this server does
// not have or that an option would open, else "Not Found".
std::string NotFoundDetail(std::string_view path, std::span<const RouteSpec* const> closed);

}  // namespace sluice
