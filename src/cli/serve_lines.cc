#include "cli/serve_lines.h"

#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

#include "base/log_format.h"
#include "cli/progress.h"
#include "client/url.h"

namespace sluice::cli {

std::string AddressOf(const ServerConfig& config, uint16_t port) {
  if (!config.uds.empty()) return "unix:" + config.uds;
  return fmt::format("{}://{}:{}", config.tls.enabled() ? "https" : "http", config.host, port);
}

void LogNextStep(const ServerConfig& config, uint16_t port) {
  if (!config.uds.empty()) {
    std::error_code ignored;
    LOG_INFO("serve", "talk to it: sluice chat --url unix://{}",
             std::filesystem::absolute(config.uds, ignored).string());
    return;
  }
  const bool any = config.host.empty() || config.host == "0.0.0.0" || config.host == "::";
  const std::string url = ServerText(
      {.host = any ? "127.0.0.1" : config.host, .port = port, .tls = config.tls.enabled()});
  if (config.enable_web) {
    LOG_INFO("serve", "open {}/ in a browser, or talk to it: sluice chat --url {}", url, url);
  } else {
    LOG_INFO("serve", "talk to it: sluice chat --url {}", url);
  }
}

void Say(options::Dialect dialect, std::initializer_list<std::string> lines) {
  const bool is_uvicorn =
      dialect != options::Dialect::kSluice && CurrentLogFormat() == LogFormat::kText;
  for (const std::string& line : lines) {
    if (is_uvicorn) {
      PrintErrorOrDrop(fmt::format("INFO:     {}\n", line));
    } else {
      LogAlways("serve", line);
    }
  }
}

void SayReady(options::Dialect dialect) {
  if (dialect == options::Dialect::kSluice) return Say(dialect, {"Application startup complete."});
  Say(dialect, {fmt::format("Started server process [{}]", getpid()),
                "Waiting for application startup.", "Application startup complete."});
}

void SayEnded(options::Dialect dialect) {
  if (dialect == options::Dialect::kSluice) return;
  Say(dialect, {"Waiting for application shutdown.", "Application shutdown complete.",
                fmt::format("Finished server process [{}]", getpid())});
}

}  // namespace sluice::cli
