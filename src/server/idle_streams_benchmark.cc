// Measures the resident memory of a server for each stream that waits for its next token. Must run
// in the project's folder.
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/process_memory.h"
#include "server/idle_streams_testing.h"
#include "server/model_text.h"
#include "server/server.h"

namespace sluice {
namespace {

int64_t AnonymousBytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

// Serves until it is killed. Writes its port to `file`.
[[noreturn]] void Serve(int file) {
  PrepareProcessMemory();
  ServerConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  config.served_model_names = {"abacus"};
  config.disable_access_log = true;
  config.max_connections = config.max_pending_requests = 20000;
  static HoldingEngine engine;
  auto server = Server::Create(config);
  CHECK(server.has_value(), "{}", server.error().message);
  auto text =
      ModelText::Load(config, "tests/data/server/model", engine.info().model.vocab_size, {});
  CHECK(text.has_value(), "{}", text.error().message);
  CHECK((*server)->Attach(&engine, *std::move(text)).has_value());
  const uint16_t port = (*server)->port();
  CHECK(write(file, &port, sizeof port) == sizeof port);
  (*server)->Run();
  _exit(0);
}

void HoldIdleStreams(benchmark::State& state) {
  const auto count = static_cast<int>(state.range(0));
  for (auto _ : state) {
    int files[2];
    CHECK(pipe(files) == 0);
    const pid_t process = fork();
    if (process == 0) Serve(files[1]);
    uint16_t port = 0;
    CHECK(read(files[0], &port, sizeof port) == sizeof port);
    close(files[0]);
    close(files[1]);
    {
      IdleStreams first(port);
      first.Open(100);
    }
    const int64_t before = AnonymousBytes(process);
    IdleStreams streams(port);
    streams.Open(count);
    const int64_t added = AnonymousBytes(process) - before;
    state.counters["MB"] = static_cast<double>(added) / 1e6;
    state.counters["bytes_per_stream"] = static_cast<double>(added) / count;
    kill(process, SIGTERM);
    waitpid(process, nullptr, 0);
  }
}

BENCHMARK(HoldIdleStreams)->Arg(1000)->Arg(10000)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace sluice
