// Log lines of `sluice serve` that people and scripts wait for.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "options/option.h"
#include "server/server_config.h"

namespace sluice::cli {

// Returns "http://127.0.0.1:8000" or "unix:PATH".
std::string AddressOf(const ServerConfig& config, uint16_t port);
// Logs which command the user may run next to talk to the server.
void LogNextStep(const ServerConfig& config, uint16_t port);

// Writes lines that scripts wait for, at every log level. With text logs and a dialect other than
// sluice's own, these are uvicorn's lines, in uvicorn's format, on stderr.
void Say(options::Dialect dialect, std::initializer_list<std::string> lines);
void SayReady(options::Dialect dialect);
void SayEnded(options::Dialect dialect);

}  // namespace sluice::cli
