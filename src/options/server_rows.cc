#include "options/rows.h"

namespace sluice::options {
namespace {

void AddHttpRows(std::vector<Option>& table) {
  Rows rows(table, "Server", kServe);
  rows.Text(
      "host", "127.0.0.1",
      "Address to listen on: 127.0.0.1 accepts connections only from this machine, 0.0.0.0 also "
      "from others. Default under the name vllm: 0.0.0.0, under trtllm-serve: localhost.",
      {.commands = kServe | kRun | kShadow,
       .vllm_default = "0.0.0.0",
       .trtllm_default = "localhost"});
  rows.Integer("port", "8000", "Port to listen on; 0: any free port, shown in the log.",
               {.commands = kServe | kRun | kShadow, .range = {0, 65535}});
  rows.Text("uds", "",
            "Path of a unix socket to listen on, instead of --host and --port. Users with write "
            "permission on the file (see umask) may connect. The file is removed at exit.",
            {.value = ValueKind::kFile});
  rows.List("api-key", "",
            "API keys: requests that compute or change something must send one of them. For "
            "commands that connect to a server: the key to send (default: OPENAI_API_KEY).",
            {.commands = kRemote | kServe, .environment = "VLLM_API_KEY", .secret = true});
  rows.Text("api-key-file", "",
            "File with more API keys, one per line; a line may also contain sha256: and a key's "
            "SHA-256 in hexadecimal. Blank lines and lines that begin with # are skipped. SIGHUP "
            "reloads the file.",
            {.value = ValueKind::kFile});
  rows.Flag("protect-all",
            "Require an API key also for routes that are otherwise open (/ping, /version, "
            "/metrics, /load, /docs, unknown paths), except /health and /ready.");
  rows.List("served-model-name", "",
            "Model names that requests may use; answers and metrics contain the first; default: "
            "the model argument.",
            {.commands = kServe | kRunBatch});
  rows.Text("root-path", "",
            "Path prefix that a proxy adds; the server accepts paths with and without it.");
  rows.List("allowed-origins", "",
            "CORS: origins whose pages may send requests, or *; default: none, as in vLLM.");
  rows.List("allowed-methods", "*", "CORS: methods that browsers may use.");
  rows.List("allowed-headers", "*", "CORS: headers that browsers may send.");
  rows.Flag("allow-credentials", "CORS: let browsers send credentials.");
  rows.Size("max-request-bytes", "64MiB",
            "Maximum size of a request body; a request with a larger body fails with status 413.",
            {.range = {1024, 1e11}});
  rows.Size(
      "request-memory-bytes", "",
      "Maximum memory for all request bodies, prompts and answers. A request that can never fit "
      "fails with status 413; a request that does not fit at the moment fails with 503. Default: "
      "half of the memory that weights, workspace and KV cache leave free, at most 1 GiB.",
      {.range = {1048576, 1e13}});
  rows.Size("h11-max-incomplete-event-size", "1MiB",
            "Maximum size of a request's head (request line and headers); a request with a larger "
            "head fails with status 431.",
            {.vllm_default = "4MiB", .range = {1024, 1073741824}});
  rows.Integer("max-connections", "4096", "Maximum number of concurrent connections.",
               {.range = {1, 1e6}});
  rows.Integer("max-num-queued-reqs", "4096",
               "Maximum number of unfinished requests, including running ones; further requests "
               "fail with status 503.",
               {.range = {1, 1e6}});
  rows.Size(
      "response-store-bytes", "256MiB",
      "Maximum memory for stored responses of /v1/responses, which can be retrieved or continued. "
      "When it is full, the oldest responses of the API key that uses the most memory are deleted.",
      {.range = {65536, 1e13}});
  rows.Text(
      "response-store", "",
      "Folder of a file to which responses are also written, so that they survive a restart. The "
      "file's size is at most --response-store-bytes. Each server needs its own folder.",
      {.value = ValueKind::kFolder});
  rows.Integer("limit-requests-per-minute", "0",
               "Maximum number of requests per minute of each client (API key, else address); "
               "further requests fail with status 429; 0: no limit.",
               {.range = {0, 1e9}});
  rows.Integer("limit-tokens-per-minute", "0",
               "Maximum number of tokens per minute of each client, in prompts and answers; "
               "further requests fail with status 429; 0: no limit.",
               {.range = {0, 1e12}});
  rows.Integer("limit-concurrent-requests", "0",
               "Maximum number of concurrent requests of each client; further requests fail with "
               "status 429; 0: no limit.",
               {.range = {0, 1e6}});
  rows.Number("timeout-keep-alive", "75",
              "Seconds until an idle connection is closed. This should be longer than the timeout "
              "of a proxy (nginx: 60), so that the proxy never sends a request on a connection "
              "that is being closed.",
              {.range = {0, 86400}, .environment = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"});
  rows.Number("timeout-header", "30",
              "Timeout in seconds from the first byte of a request to the end of its headers.",
              {.range = {0.1, 86400}});
  rows.Number("timeout-body", "120", "Timeout in seconds for receiving the body of a request.",
              {.range = {0.1, 86400}});
  rows.Number("timeout-write", "300",
              "Seconds after which a client that does not read its answer is disconnected.",
              {.range = {0.1, 86400}});
  rows.Flag("check",
            "Check options, API keys, certificate, port, model and memory, print the memory plan "
            "and exit, without starting the server or downloading weights. The exit code shows the "
            "cause of an error.",
            {.commands = kServe});
  rows.Flag("listen-when-ready",
            "Listen only after the model is loaded. Until then, connections are refused, so a "
            "proxy without active health checks tries another server. Without this option, the "
            "port opens immediately, and /health and /ready report the progress of loading.",
            {.commands = kServe});
  rows.Number("drain-delay", "0",
              "Seconds after SIGTERM or SIGINT during which requests are still served, with "
              "Connection: close, but /ready returns 503. So proxies and Kubernetes can stop "
              "sending requests before any is refused. After the delay, new connections are "
              "refused and --shutdown-timeout begins. A second SIGTERM or SIGINT skips the delay.",
              {.commands = kServe, .range = {0, 3600}});
  rows.Number("shutdown-timeout", "30",
              "Seconds that running requests may take to finish after SIGTERM or SIGINT and "
              "--drain-delay; 0 aborts them immediately. A second SIGTERM or SIGINT exits "
              "immediately. A step or device that hangs delays the exit by at most one minute.",
              {.range = {0, 86400}, .aliases = "--drain-timeout"});
  rows.Integer("api-server-count", "1", "Number of I/O threads for connections.",
               {.range = {1, 256}, .aliases = "-asc"});
  rows.Integer("renderer-num-workers", "2",
               "Number of threads that render templates, tokenize and detokenize; requests with "
               "bodies above 256 KiB use at most half of them.",
               {.range = {1, 256}});
}

void AddDoorRows(std::vector<Option>& table) {
  Rows rows(table, "Several models", kServe);
  rows.Text("models", "",
            "YAML file with several models to serve: a list \"models\" with each model's name, "
            "path, options, pinned and priority. A model is loaded when a request names it. Other "
            "options on the command line are defaults for all models.",
            {.value = ValueKind::kFile});
  rows.Size(
      "models-memory", "",
      "Maximum memory for all loaded models of --models; default: 90 % of the memory that is free "
      "at start. If another model needs memory, the model that has been idle longest is unloaded.",
      {.range = {1048576, 1e13}, .needs = "models"});
  rows.Number("models-wait", "600",
              "Seconds that a request waits for its model of --models to be loaded; then it fails "
              "with status 503.",
              {.range = {0.1, 86400}, .needs = "models"});
  rows.Integer("models-max-waiting", "256",
               "Maximum number of requests that wait for each model of --models; further requests "
               "fail with status 503.",
               {.range = {1, 1e6}, .needs = "models"});
}

void AddTlsRows(std::vector<Option>& table) {
  Rows rows(table, "TLS", kServe);
  rows.Text("ssl-certfile", "",
            "File with the server's certificate, followed by those of its issuers (PEM). The "
            "server then uses HTTPS with TLS 1.2 or later.",
            {.value = ValueKind::kFile});
  rows.Text("ssl-keyfile", "",
            "File with the certificate's private key (PEM, without a passphrase); default: the key "
            "is in --ssl-certfile.",
            {.value = ValueKind::kFile});
  rows.Text("ssl-ca-certs", "",
            "File with the certificate authorities (PEM) that may issue client certificates.",
            {.value = ValueKind::kFile});
  rows.Integer("ssl-cert-reqs", "0",
               "Client certificates: 0: not requested, 1: optional, 2: required.",
               {.range = {0, 2}});
  rows.Text("ssl-ciphers", "",
            "Ciphers for TLS 1.2 in OpenSSL's format; default: ciphers with forward secrecy and "
            "authenticated encryption. The ciphers for TLS 1.3 are fixed.");
  rows.Flag("enable-ssl-refresh",
            "Reload the files of --ssl-* when they change; new connections use the new "
            "certificate. If the new files are invalid, an error is logged and they are ignored.");
}

void AddAnswerRows(std::vector<Option>& table) {
  Rows rows(table, "Answers", kServe);
  rows.Text("chat-template", "", "Path or text of the chat template; default: the model's own.",
            {.commands = kAnswering, .value = ValueKind::kFile});
  rows.Choice("chat-template-content-format", "auto", "auto|string|openai",
              "Form of message content that is passed to the chat template: string, or a list of "
              "parts as in the OpenAI API; auto inspects the template.",
              {.commands = kAnswering});
  rows.Json("default-chat-template-kwargs", "",
            "Variables of the chat template, as a JSON object; requests may override them.",
            {.commands = kAnswering});
  rows.Flag("trust-request-chat-template", "Accept chat_template in requests.",
            {.trtllm = "--allow_request_chat_template"});
  rows.Flag("enable-auto-tool-choice",
            "Let the model decide whether to call tools; needs --tool-call-parser.");
  rows.Text("tool-call-parser", "",
            "Format of the model's tool calls, by vLLM's name (docs/parsers.md); auto: determined "
            "from the chat template.",
            {.trtllm = "--tool_parser"});
  rows.Choice("tool-strict-level", "auto", "auto|function|parameter",
              "Constraints on tool calls if the model decides whether to call a tool. auto: the "
              "schemas of functions with \"strict\"; function: the format of calls and the names "
              "of functions; parameter: the schemas of all functions.");
  rows.Flag("exclude-tools-when-tool-choice-none",
            "Do not pass tools to the chat template if tool_choice is none.");
  rows.Text("reasoning-parser", "",
            "Format of the model's reasoning, by vLLM's name (docs/parsers.md); auto: determined "
            "from the chat template; default: reasoning remains part of the text.");
  rows.Json("reasoning-effort-map", "",
            "Replacements for the reasoning efforts of requests, such as {\"medium\": \"low\"} for "
            "a chat template that supports only low and high; other efforts are not changed.",
            {.commands = kAnswering});
  rows.Text("response-role", "assistant", "Role of the message in chat answers.");
  rows.Flag("return-tokens-as-token-ids", "Write tokens in logprobs as token_id:N.");
  rows.Flag("enable-prompt-tokens-details", "Report in usage how many prompt tokens were cached.");
  rows.Flag("enable-force-include-usage",
            "Send usage at the end of every stream, even if it was not requested.");
  rows.Flag("enable-request-id-headers",
            "Add an X-Request-Id header to answers: the client's own id, or a new one.");
  rows.Flag("enable-server-load-tracking", "Count unfinished requests in GET /load.");
  rows.Flag("enable-tokenizer-info-endpoint", "Serve GET /tokenizer_info.");
  rows.Flag("enable-scale-out",
            "Serve POST /inference/v1/generate, which accepts and returns token ids.");
  rows.Flag(
      "enable-prompt-embeds",
      "Accept prompt_embeds (embeddings instead of tokens) in /v1/completions; only on a CPU.");
  rows.Flag("disable-fastapi-docs", "Do not serve /docs, /redoc and /openapi.json.");
  rows.Flag("disable-web", "Do not serve the web page at / (docs/web.md).");
  rows.Flag("enable-per-request-metrics",
            "Return the request's timings and token counts with each answer.");
  rows.Flag("enable-sleep-mode",
            "Allow POST /sleep to release the memory of weights and KV cache.");
  rows.Number(
      "sleep-idle-seconds", "0",
      "Seconds without a request after which the server sleeps until the next request; 0: never.",
      {.range = {0, 1e9}, .needs = "enable-sleep-mode"});
  rows.Choice("sleep-requests", "wait", "wait|refuse",
              "Whether requests between /sleep and /wake_up wait, or fail with status 503.",
              {.needs = "enable-sleep-mode"});
  rows.Json("weight-transfer-config", "",
            "Allow a trainer to replace the weights: {\"backend\": \"disk\"} reads each update "
            "from a checkpoint folder; {\"backend\": \"http\"} also accepts safetensors in request "
            "bodies, with the settings \"folder\" and \"max_bytes\". Other backends are refused.");
  rows.Number("sse-keep-alive-interval", "0",
              "Seconds without output after which a stream sends a comment; 0: never.",
              {.range = {0, 86400}});
  rows.Integer("stream-interval", "1", "Number of tokens in each event of a stream.",
               {.range = {1, 1e6}});
  rows.Choice(
      "logprobs-mode", "raw_logprobs",
      "raw_logprobs|processed_logprobs|raw_logits|processed_logits",
      "How logprobs are computed. raw_...: from the model's logits; processed_...: from the logits "
      "after bias, penalties and temperature; ..._logits: logits are returned instead of logprobs.",
      {.commands = kAnswering});
  rows.Json(
      "structured-outputs-config", "",
      "Settings for constrained answers, as a JSON object. disable_any_whitespace: true omits "
      "white space between the parts of JSON. enable_in_reasoning: true applies a constraint to "
      "the whole answer, which then has no reasoning. Other keys of vLLM have no effect.",
      {.reason = "one library enforces all constraints on answers",
       .keys = "disable_any_whitespace|enable_in_reasoning"});
  rows.Choice("fingerprint-mode", "full", "full|hash|custom|none",
              "Content of system_fingerprint: version and settings (full), a hash of these (hash), "
              "--fingerprint-value (custom), or nothing (none).");
  rows.Text("fingerprint-value", "", "Text for --fingerprint-mode custom.");
  rows.Flag("enable-response-store",
            "Store responses of /v1/responses unless the request has \"store\": false.",
            {.default_value = "true",
             .vllm_default = "false",
             .environment = "VLLM_ENABLE_RESPONSES_API_STORE"});
  rows.Flag(
      "dev-mode",
      "Serve the routes for developers, such as /server_info, to all clients with an API key, "
      "or to all clients if no key is set.",
      {.environment = "VLLM_SERVER_DEV_MODE"});
  rows.Flag("skip-model-name-validation", "Accept any \"model\" in requests.",
            {.environment = "VLLM_SKIP_MODEL_NAME_VALIDATION"});
  rows.Integer("max-stop-strings", "4", "Maximum number of stop strings of a request.",
               {.range = {0, 1e6}, .environment = "VLLM_MAX_STOP_STRINGS"});
  rows.Integer("max-completion-prompts", "1024", "Maximum number of prompts in a request.",
               {.range = {1, 1e6}, .environment = "VLLM_MAX_COMPLETION_PROMPTS"});
  rows.Integer("max-n-sequences", "16384", "Maximum value of \"n\" in a request.",
               {.range = {1, 1e6}, .environment = "VLLM_MAX_N_SEQUENCES"});
  rows.Integer("max-num-bad-words", "128", "Maximum number of bad words of a request.",
               {.range = {0, 1e6}, .environment = "VLLM_MAX_NUM_BAD_WORDS"});
}

void AddLogRows(std::vector<Option>& table) {
  Rows rows(table, "Log", kServe);
  rows.Choice("log-level", "info",
              "trace|debug|info|warning|error|critical|verbose|notset|internal_error",
              "Lowest level of messages that are logged.",
              {.commands = kAllCommands, .environment = "VLLM_LOGGING_LEVEL"});
  rows.Choice(
      "log-format", "text", "text|json",
      "Format of the log: lines of text, or one JSON object per line with ts, level, source and "
      "message; lines about requests also have request_id, status, seconds, tokens and more.");
  rows.Choice("uvicorn-log-level", "info", "trace|debug|info|warning|error|critical",
              "Level of the access log; warning and higher levels turn it off.");
  rows.Flag("disable-uvicorn-access-log", "Do not log HTTP requests.");
  rows.Text("disable-access-log-for-endpoints", "",
            "Comma-separated paths whose requests are not logged, for example /health,/metrics.");
  rows.Flag("enable-log-requests", "Log every request with its parameters.");
  rows.Flag("enable-log-outputs", "With --enable-log-requests: also log the answers.");
  rows.Integer("max-log-len", "", "Maximum number of characters of a prompt or answer in the log.",
               {.commands = kServe | kRunBatch, .range = {0, 1e9}});
  rows.Flag("aggregate-engine-logging",
            "Log statistics of all engines of --data-parallel-size in one line.");
  rows.Flag("disable-log-stats", "Do not log statistics periodically.",
            {.commands = kEngineArguments});
  rows.Number("log-stats-interval", "10",
              "Seconds between two lines of statistics in the log; 0: none.",
              {.range = {0, 86400},
               .environment = "VLLM_LOG_STATS_INTERVAL",
               .trtllm = "--metrics_log_interval"});
  rows.Text("otlp-traces-endpoint", "",
            "Address of an OpenTelemetry collector (http://HOST:4318) to which a span for each "
            "request is sent, by OTLP over HTTP (docs/production.md).",
            {.commands = kServe | kRunBatch});
  rows.Text(
      "config", "",
      "YAML file with options. Its keys are \"model\" and option names with dashes or underscores.",
      {.commands = kAllCommands, .trtllm = "--extra_llm_api_options", .value = ValueKind::kFile});
  rows.Flag(
      "fail-on-environ-validation",
      "Refuse to start if an unknown VLLM_ variable is set; otherwise the variable is logged.",
      {.commands = kServe | kRunBatch});
}

void AddTrtllmRows(std::vector<Option>& table) {
  Rows rows(table, "trtllm-serve", kServe);
  rows.Flag("enable-iter-perf-stats", "Report every step in GET /metrics, as trtllm-serve does.",
            {.dialects = DialectBit(Dialect::kTrtllm)});
  rows.List("set", "", "key=value with a key of the YAML file: kv_cache_config.dtype=fp8.",
            {.dialects = DialectBit(Dialect::kTrtllm)});
}

}  // namespace

void AddServerRows(std::vector<Option>& table) {
  AddHttpRows(table);
  AddDoorRows(table);
  AddTlsRows(table);
  AddAnswerRows(table);
  AddLogRows(table);
  AddTrtllmRows(table);
}

}  // namespace sluice::options
