#include "options/rows.h"

namespace sluice::options {
namespace {

constexpr std::string_view kGroup = "Front end as vLLM knows it";

Option NoEffect(std::string_view why) {
  return {.group = kGroup, .commands = kServe | kRunBatch, .no_effect = why};
}
Option Refused(std::string_view why) {
  return {.group = kGroup, .commands = kServe | kRunBatch, .refuses = why};
}

std::vector<Option> ListenRows() {
  std::vector<Option> rows = RowsLike(
      Refused("connections are not encrypted here; let a proxy in front of the server do it"),
      {
          {"ssl-keyfile", Type::kString, "Key for HTTPS."},
          {"ssl-certfile", Type::kString, "Certificate for HTTPS."},
          {"ssl-ca-certs", Type::kString, "Whose clients are let in."},
          {"ssl-cert-reqs", Type::kInteger, "Must clients bring one.", "0"},
          {"ssl-ciphers", Type::kString, "Ciphers for HTTPS."},
          {"enable-ssl-refresh", Type::kFlag, "Read certificates again when they change."},
      });
  const auto others =
      RowsLike(Refused("the API is served by HTTP on --host and --port; leave it out"),
               {
                   {"uds", Type::kString, "A Unix socket in place of a port."},
                   {"grpc", Type::kFlag, "gRPC in place of HTTP."},
                   {"tokens-only", Type::kFlag, "Token ids in, token ids out, nothing else."},
               });
  const auto python = RowsLike(
      Refused("there is no Python in this program; let a proxy in front of the server do it"),
      {
          {"middleware", Type::kStrings, "Python code around every request."},
          {"tool-server", Type::kString, "Tools that the server runs itself."},
      });
  const auto small =
      RowsLike(NoEffect("only HTTP/1.1 is spoken, within --h11-max-incomplete-event-size"),
               {
                   {"grpc-port", Type::kInteger, "Port of gRPC."},
                   {"h11-max-header-count", Type::kInteger, "Most headers of a request."},
               });
  for (const auto& part : {others, python, small})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

std::vector<Option> AnswerRows() {
  std::vector<Option> rows = RowsLike(
      NoEffect("tool calls and structured output are not served yet: a request for them is "
               "answered 400"),
      {
          {"exclude-tools-when-tool-choice-none", Type::kFlag, "Hide tools that may not be used."},
          {"tool-parser-plugin", Type::kString, "Python file with a parser."},
          {"tool-strict-level", Type::kString, "How strict tools are.", "",
           "auto|function|parameter"},
          {"reasoning-parser-plugin", Type::kString, "Python file with a parser."},
          {"reasoning-config", Type::kJson, "Limits of reasoning."},
          {"structured-outputs-config", Type::kJson, "How JSON and grammars are enforced."},
      });
  const auto routes =
      RowsLike(NoEffect("the routes that it is about are not served"),
               {
                   {"cohere-is-reasoning-model", Type::kFlag, "Cohere's API.", "true"},
                   {"cohere-format", Type::kString, "Cohere's API."},
                   {"anthropic-disabled-thinking-effort", Type::kString, "Anthropic's API.", "",
                    "auto|high|low|max|medium|none|xhigh"},
                   {"enable-flash-late-interaction", Type::kFlag, "Scores of documents.", "true"},
                   {"enable-offline-docs", Type::kFlag, "/docs without the network."},
               });
  rows.insert(rows.end(), routes.begin(), routes.end());
  return rows;
}

std::vector<Option> WatchingRows() {
  std::vector<Option> rows =
      RowsLike(NoEffect("no traces are sent"),
               {
                   {"otlp-traces-endpoint", Type::kString, "Where OpenTelemetry traces go."},
                   {"collect-detailed-traces", Type::kStrings, "What they tell."},
               });
  const auto metrics = RowsLike(
      NoEffect("/metrics has all that is counted, under old names and new"),
      {
          {"show-hidden-metrics-for-version", Type::kString, "Bring retired metrics back."},
          {"custom-histogram-buckets", Type::kJson, "Other bounds of histograms."},
          {"enable-mfu-metrics", Type::kFlag, "Share of the machine's peak."},
      });
  const auto logs =
      RowsLike(NoEffect("there is one log, in one format"),
               {
                   {"logging-config", Type::kJson, "Python's logging."},
                   {"log-config-file", Type::kString, "Python's logging."},
                   {"log-error-stack", Type::kFlag, "Python's call stacks."},
                   {"enable-log-deltas", Type::kFlag, "Log each piece of a stream.", "true"},
                   {"enable-logging-iteration-details", Type::kFlag, "Log each step."},
                   {"aggregate-engine-logging", Type::kFlag, "One line for all copies."},
               });
  for (const auto& part : {metrics, logs}) rows.insert(rows.end(), part.begin(), part.end());
  rows.push_back({.name = "fail-on-environ-validation",
                  .type = Type::kFlag,
                  .default_value = "false",
                  .group = kGroup,
                  .commands = kServe | kRunBatch,
                  .help = "Refuse to start where a variable VLLM_... is unknown; otherwise the log "
                          "tells of it."});
  return rows;
}

}  // namespace

std::vector<Option> FrontendRows() {
  std::vector<Option> rows = ListenRows();
  for (const auto& part : {AnswerRows(), WatchingRows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace sluice::options
