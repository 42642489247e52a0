// Lines of the log of `sluice serve` that people and scripts wait for.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "options/option.h"
#include "server/server_config.h"

namespace sluice::cli {

// "http://127.0.0.1:8000" or "unix:PATH"
std::string AddressOf(const ServerConfig& config, uint16_t port);
// What a person does next.
void LogNextStep(const ServerConfig& config, uint16_t port);

// Lines that scripts wait for, at every log level. Under the names of other programs they are
// uvicorn's, in its form and where it writes them.
void Say(options::Dialect dialect, std::initializer_list<std::string> lines);
void SayReady(options::Dialect dialect);
void SayEnded(options::Dialect dialect);

}  // namespace sluice::cli
