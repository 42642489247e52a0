#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/batch_file.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/remote.h"
#include "cli/serving.h"
#include "client/http_client.h"

namespace sluice::cli {
namespace {

constexpr int kMaxWorkers = 64;
constexpr int kExitAllFailed = 1;

std::string Answer(const HttpClient& client, const std::string& line, bool& failed) {
  BatchRequest request;
  failed = true;
  if (const Status status = ParseBatchRequest(line, request); !status)
    return BatchError(request.custom_id, 400, status.error().message);
  const auto response = client.Post(request.path, request.body);
  if (!response) return BatchError(request.custom_id, 500, response.error().message);
  const auto body = json::Parse(response->body);
  if (!body) return BatchError(request.custom_id, 500, "the answer is not JSON");
  failed = response->status != 200;
  return BatchAnswer(request.custom_id, response->status, *body);
}

Status CheckFiles(const options::Settings& settings) {
  for (const std::string_view name : {"input-file", "output-file"}) {
    const std::string file = settings.TextOr(name);
    if (file.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--{} is missing: run-batch reads requests from --input-file and "
                              "writes answers to --output-file",
                              name),
                  std::string(name));
    }
    if (file.starts_with("http://") || file.starts_with("https://")) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("--{} {}: only local files are supported; download the file first",
                              name, file),
                  std::string(name));
    }
  }
  return {};
}

// The server for the requests: a running one, or one in this process.
struct BatchTarget {
  std::unique_ptr<Serving> serving;
  Remote remote;
};

Result<BatchTarget> FindBatchTarget(const options::Settings& settings) {
  BatchTarget target;
  if (const auto address = settings.Text("url")) {
    if (HasModelArgument(settings)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--url names a running server, and requests name its models; --model loads a "
                  "model here: give only one of them",
                  "url");
    }
    ASSIGN_OR_RETURN(target.remote, RemoteAt(settings, *address));
    Url& url = target.remote.url;
    if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
    return target;
  }
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(const EngineConfig engine_config, MakeEngineConfig(settings, model));
  ServerConfig server_config = MakeServerConfig(settings, model);
  server_config.host = "127.0.0.1";
  server_config.port = 0;
  server_config.api_keys.clear();  // no keys are needed, because the port is not published
  server_config.disable_access_log = true;
  server_config.log_stats_seconds = 0;
  server_config.served_model_names = settings.List("served-model-name");
  if (server_config.served_model_names.empty() && model.as_given != model.name)
    server_config.served_model_names = {model.as_given, model.name};
  ASSIGN_OR_RETURN(target.serving, Serving::Bind(server_config));
  RETURN_IF_ERROR(target.serving->Load(engine_config, model, LoadReport::kTerminal));
  target.remote.url = Url{.host = "127.0.0.1", .port = target.serving->server().port()};
  return target;
}

}  // namespace

Result<int> RunBatch(const options::Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(CheckFiles(settings));
  ASSIGN_OR_RETURN(const BatchTarget target, FindBatchTarget(settings));
  const HttpClient client = target.remote.http();
  const int workers = static_cast<int>(
      std::clamp<int64_t>(settings.Integer("max-num-seqs").value_or(kMaxWorkers), 1, kMaxWorkers));
  ASSIGN_OR_RETURN(const BatchTotals totals,
                   RunBatchFile(settings.TextOr("input-file"), settings.TextOr("output-file"),
                                workers, [&](const std::string& line, bool& failed) {
                                  return Answer(client, line, failed);
                                }));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  PrintError(fmt::format("{} requests answered, {} of them with an error, in {:.1f} s\n",
                         totals.requests, totals.failed, seconds));
  // The output file shows which requests failed. The run fails only if all requests failed.
  return totals.requests > 0 && totals.failed == totals.requests ? kExitAllFailed : 0;
}

}  // namespace sluice::cli
