// Measures the CPU time that a line of the access log costs the server's threads.
#include <benchmark/benchmark.h>

#include <fcntl.h>
#include <unistd.h>

#include "server/access_log.h"

namespace sluice {
namespace {

// Formats, queues and writes a line. Measures the CPU time of the whole process, including the
// writing thread.
void BM_AccessLogLine(benchmark::State& state) {
  SetLogFormat(state.range(0) != 0 ? LogFormat::kJson : LogFormat::kText);
  const int null = open("/dev/null", O_WRONLY);
  const AnswerNotes notes = {.request_id = "chatcmpl-0123456789abcdef",
                             .prompt_tokens = 1234,
                             .completion_tokens = 256,
                             .cached_tokens = 1024,
                             .finish_reason = "stop"};
  HttpExchangeRecord record;
  record.client = "127.0.0.1:52976";
  record.method = "POST";
  record.target = record.path = "/v1/chat/completions";
  record.version = "1.1";
  record.status = 200;
  record.seconds = 1.25;
  record.notes = &notes;
  {
    AccessLog log({}, std::make_shared<ApiKeys>(), null);
    for (auto _ : state) log.Add(record);
  }
  close(null);
  SetLogFormat(LogFormat::kText);
}
BENCHMARK(BM_AccessLogLine)->ArgName("json")->Arg(0)->Arg(1)->MeasureProcessCPUTime();

}  // namespace
}  // namespace sluice
