#include "options/rows.h"

namespace sluice::options {
namespace {

void AddHttpRows(std::vector<Option>& table) {
  Rows rows(table, "Server", kServe);
  rows.Text(
      "host", "127.0.0.1",
      "Address to listen on: 127.0.0.1 for this machine alone, 0.0.0.0 for others, too; under "
      "the name vllm it is 0.0.0.0, under trtllm-serve localhost.",
      {.commands = kServe | kRun | kShadow,
       .vllm_default = "0.0.0.0",
       .trtllm_default = "localhost"});
  rows.Integer("port", "8000", "Port to listen on; 0: any free port, shown in the log.",
               {.commands = kServe | kRun | kShadow, .range = {0, 65535}});
  rows.Text("uds", "",
            "Path of a unix socket to listen on, in place of --host and --port. Users with write "
            "permission on the file (see umask) may connect. It is removed at the end.",
            {.value = ValueKind::kFile});
  rows.List("api-key", "",
            "Keys, one of which a request must present for all that computes or changes something; "
            "for commands that talk to a server, the key to send (default: OPENAI_API_KEY).",
            {.commands = kRemote | kServe, .environment = "VLLM_API_KEY", .secret = true});
  rows.Text("api-key-file", "",
            "File of further API keys, one a line, or sha256: and a key's SHA-256 in hexadecimal; "
            "blank lines and those that begin with # are skipped. SIGHUP reads it again.",
            {.value = ValueKind::kFile});
  rows.Flag("protect-all",
            "Ask for an API key wherever one is not needed otherwise (/ping, /version, /metrics, "
            "/load, /docs, unknown paths), but for /health and /ready.");
  rows.List("served-model-name", "",
            "Names under which requests may address the model; answers and metrics show the first; "
            "default: the model argument.",
            {.commands = kServe | kRunBatch});
  rows.Text("root-path", "",
            "Path prefix that a proxy adds; paths with and without it are answered.");
  rows.List("allowed-origins", "",
            "CORS: origins that browsers may call from, or *; default: none, as in vLLM.");
  rows.List("allowed-methods", "*", "CORS: methods that browsers may use.");
  rows.List("allowed-headers", "*", "CORS: headers that browsers may send.");
  rows.Flag("allow-credentials", "CORS: let browsers send credentials.");
  rows.Size("max-request-bytes", "64MiB",
            "Largest body of a request; a larger one is answered 413.", {.range = {1024, 1e11}});
  rows.Size("request-memory-bytes", "",
            "Memory that bodies, prompts and answers may hold together; a request that never fits "
            "is answered 413, one that does not fit now 503. Default: half of what weights, "
            "workspace and KV cache leave, at most 1 GiB.",
            {.range = {1048576, 1e13}});
  rows.Size("h11-max-incomplete-event-size", "1MiB",
            "Largest head (request line and headers) of a request; a larger one is answered 431.",
            {.vllm_default = "4MiB", .range = {1024, 1073741824}});
  rows.Integer("max-connections", "4096", "Most connections at a time.", {.range = {1, 1e6}});
  rows.Integer("max-num-queued-reqs", "4096",
               "Most unfinished requests, running ones included; further ones are answered 503.",
               {.range = {1, 1e6}});
  rows.Size(
      "response-store-bytes", "256MiB",
      "Memory of the responses of /v1/responses that are kept to be fetched or continued; when it "
      "is full, the oldest of the API key that holds most are forgotten.",
      {.range = {65536, 1e13}});
  rows.Text("response-store", "",
            "Folder of a file that keeps the stored responses, too, so that they are there after "
            "a restart; as large as --response-store-bytes. Each server needs its own.",
            {.value = ValueKind::kFolder});
  rows.Integer("limit-requests-per-minute", "0",
               "Most requests a minute of each client (API key, else address); further ones are "
               "answered 429; 0: no limit.",
               {.range = {0, 1e9}});
  rows.Integer("limit-tokens-per-minute", "0",
               "Tokens a minute, of prompts and answers, after which a client's further requests "
               "are answered 429; 0: no limit.",
               {.range = {0, 1e12}});
  rows.Integer("limit-concurrent-requests", "0",
               "Most requests of each client at a time; further ones are answered 429; 0: no "
               "limit.",
               {.range = {0, 1e6}});
  rows.Number(
      "timeout-keep-alive", "75",
      "Seconds until an idle connection is closed: more than proxies keep theirs (nginx 60), "
      "so that none sends a request on one that is being closed.",
      {.range = {0, 86400}, .environment = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"});
  rows.Number("timeout-header", "30",
              "Seconds from the first byte of a request to the end of its headers.",
              {.range = {0.1, 86400}});
  rows.Number("timeout-body", "120", "Seconds for the body of a request.", {.range = {0.1, 86400}});
  rows.Number("timeout-write", "300",
              "Seconds after which a client that does not read is disconnected.",
              {.range = {0.1, 86400}});
  rows.Flag("check",
            "Check options, keys, certificate, port, model and memory, print the plan and end: "
            "nothing is started, and no weights are downloaded. The exit code says what is wrong.",
            {.commands = kServe});
  rows.Flag("listen-when-ready",
            "Listen once the model is loaded: until then connections are refused, so that a proxy "
            "without active checks tries another server. Otherwise the port is open at once, and "
            "/health and /ready say how far the start is.",
            {.commands = kServe});
  rows.Number(
      "drain-delay", "0",
      "Seconds after SIGTERM or SIGINT in which /ready answers 503 and requests are still served, "
      "so that proxies and Kubernetes learn of it and no request is lost; answers say Connection: "
      "close. Then new connections are refused and --shutdown-timeout begins. A second SIGTERM or "
      "SIGINT skips the delay.",
      {.commands = kServe, .range = {0, 3600}});
  rows.Number(
      "shutdown-timeout", "30",
      "Seconds that running requests get to finish after SIGTERM or SIGINT, and after "
      "--drain-delay; 0 aborts them. A second SIGTERM or SIGINT exits at once. A step or device "
      "that does not finish delays the exit by at most a minute.",
      {.range = {0, 86400}, .aliases = "--drain-timeout"});
  rows.Integer("api-server-count", "1", "Threads that read and write connections.",
               {.range = {1, 256}, .aliases = "-asc"});
  rows.Integer("renderer-num-workers", "2",
               "Threads that render templates, tokenize and detokenize; of several, bodies above "
               "256 KiB use at most half.",
               {.range = {1, 256}});
}

void AddDoorRows(std::vector<Option>& table) {
  Rows rows(table, "Several models", kServe);
  rows.Text("models", "",
            "YAML file of several models to serve at this address: models: a list of name, path, "
            "options, pinned and priority. A request loads the model that it names; other options "
            "of the command line are defaults for all of them.",
            {.value = ValueKind::kFile});
  rows.Size("models-memory", "",
            "Memory that the loaded models of --models may take together; default: nine tenths of "
            "what is free at the start. To load another, the one that was idle longest is put out.",
            {.range = {1048576, 1e13}, .needs = "models"});
  rows.Number("models-wait", "600",
              "Seconds that a request waits for its model of --models to be loaded; then it is "
              "answered 503.",
              {.range = {0.1, 86400}, .needs = "models"});
  rows.Integer("models-max-waiting", "256",
               "Most requests that wait for each model of --models; further ones are answered 503.",
               {.range = {1, 1e6}, .needs = "models"});
}

void AddTlsRows(std::vector<Option>& table) {
  Rows rows(table, "TLS", kServe);
  rows.Text("ssl-certfile", "",
            "File of the server's certificate, followed by those of its issuers (PEM): the server "
            "speaks HTTPS, TLS 1.2 or later.",
            {.value = ValueKind::kFile});
  rows.Text("ssl-keyfile", "",
            "File of the certificate's key (PEM, without a passphrase); default: it is in "
            "--ssl-certfile.",
            {.value = ValueKind::kFile});
  rows.Text("ssl-ca-certs", "",
            "File of the certificates (PEM) whose owners may issue certificates of clients.",
            {.value = ValueKind::kFile});
  rows.Integer("ssl-cert-reqs", "0",
               "Whether clients show a certificate: 0 none is asked for, 1 if they have one, 2 "
               "always.",
               {.range = {0, 2}});
  rows.Text("ssl-ciphers", "",
            "Ciphers of TLS 1.2 in OpenSSL's form; default: those with forward secrecy and "
            "authenticated encryption. Those of TLS 1.3 are fixed.");
  rows.Flag("enable-ssl-refresh",
            "Read the files of --ssl-* again when they change; new connections have the new "
            "certificate, and what cannot be used is logged and not taken.");
}

void AddAnswerRows(std::vector<Option>& table) {
  Rows rows(table, "Answers", kServe);
  rows.Text("chat-template", "", "Path or text of the chat template; default: the model's own.",
            {.commands = kAnswering, .value = ValueKind::kFile});
  rows.Choice("chat-template-content-format", "auto", "auto|string|openai",
              "Form of message content in templates: string, or a list of parts as in the OpenAI "
              "API; auto inspects the template.",
              {.commands = kAnswering});
  rows.Json("default-chat-template-kwargs", "",
            "Variables of the chat template, as a JSON object; requests may override them.",
            {.commands = kAnswering});
  rows.Flag("trust-request-chat-template", "Let requests bring their own chat_template.",
            {.trtllm = "--allow_request_chat_template"});
  rows.Flag("enable-auto-tool-choice",
            "Let the model decide whether to call tools; needs --tool-call-parser.");
  rows.Text("tool-call-parser", "",
            "How the model writes tool calls, by vLLM's name for it (docs/parsers.md), or auto: as "
            "the chat template asks.",
            {.trtllm = "--tool_parser"});
  rows.Choice("tool-strict-level", "auto", "auto|function|parameter",
              "What calls are held to where the model decides: the schemas of functions that say "
              "strict (auto), their form and the names of functions (function), or all schemas "
              "(parameter).");
  rows.Flag("exclude-tools-when-tool-choice-none",
            "Do not show tools to the chat template where tool_choice is none.");
  rows.Text("reasoning-parser", "",
            "How the model writes reasoning, by vLLM's name for it (docs/parsers.md), or auto: as "
            "the chat template asks; default: reasoning stays in the text.");
  rows.Json("reasoning-effort-map", "",
            "What reasoning efforts of requests become for the chat template, such as {\"medium\": "
            "\"low\"} where it knows low and high alone; others stay as they are.",
            {.commands = kAnswering});
  rows.Text("response-role", "assistant", "Role in chat answers.");
  rows.Flag("return-tokens-as-token-ids", "Write tokens in logprobs as token_id:N.");
  rows.Flag("enable-prompt-tokens-details", "Report in usage how many prompt tokens were cached.");
  rows.Flag("enable-force-include-usage",
            "Send usage with every stream, whether requested or not.");
  rows.Flag("enable-request-id-headers",
            "Answer with an X-Request-Id header: the client's own, or a new one.");
  rows.Flag("enable-server-load-tracking", "Let GET /load count unfinished requests.");
  rows.Flag("enable-tokenizer-info-endpoint", "Answer GET /tokenizer_info.");
  rows.Flag("enable-scale-out", "Answer POST /inference/v1/generate: tokens in, tokens out.");
  rows.Flag("enable-prompt-embeds",
            "Take prompt_embeds in /v1/completions: embeddings in place of tokens, on a CPU.");
  rows.Flag("disable-fastapi-docs", "Do not serve /docs, /redoc and /openapi.json.");
  rows.Flag("disable-web", "Do not serve the page at / (docs/web.md).");
  rows.Flag("enable-per-request-metrics",
            "Return timings and token counts of the request with its answer.");
  rows.Flag("enable-sleep-mode", "Let POST /sleep give back the memory of weights and KV cache.");
  rows.Number("sleep-idle-seconds", "0",
              "Seconds without a request after which the server sleeps until one comes; 0: never.",
              {.range = {0, 1e9}, .needs = "enable-sleep-mode"});
  rows.Choice("sleep-requests", "wait", "wait|refuse",
              "What becomes of requests between /sleep and /wake_up: they wait, or get 503.",
              {.needs = "enable-sleep-mode"});
  rows.Json("weight-transfer-config", "",
            "Let a trainer replace the weights: {\"backend\": \"disk\"}, the folder of a "
            "checkpoint for each update, or {\"backend\": \"http\"}, also safetensors in bodies, "
            "with \"folder\" and \"max_bytes\" for them. Others are refused.");
  rows.Number("sse-keep-alive-interval", "0",
              "Seconds of silence after which a stream sends a comment; 0: never.",
              {.range = {0, 86400}});
  rows.Integer("stream-interval", "1", "Tokens in one event of a stream.", {.range = {1, 1e6}});
  rows.Choice("logprobs-mode", "raw_logprobs",
              "raw_logprobs|processed_logprobs|raw_logits|processed_logits",
              "What logprobs are computed from: raw_ from the model's logits, processed_ after "
              "bias, penalties and temperature; _logits returns the logits themselves.",
              {.commands = kAnswering});
  rows.Json(
      "structured-outputs-config", "",
      "Settings of constrained answers, as a JSON object: with disable_any_whitespace true, "
      "JSON has no white space between its parts; with enable_in_reasoning true, a constraint "
      "holds for the whole answer, of which none is reasoning then; other keys of vLLM have no "
      "effect.",
      {.reason = "one library enforces all constraints on answers",
       .keys = "disable_any_whitespace|enable_in_reasoning"});
  rows.Choice("fingerprint-mode", "full", "full|hash|custom|none",
              "Content of system_fingerprint: version and settings (full), a hash of them, "
              "--fingerprint-value (custom), or nothing.");
  rows.Text("fingerprint-value", "", "Text for --fingerprint-mode custom.");
  rows.Flag("enable-response-store",
            "Keep responses of /v1/responses whose request does not say \"store\": false.",
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
  rows.Integer("max-stop-strings", "4", "Most stop strings of a request.",
               {.range = {0, 1e6}, .environment = "VLLM_MAX_STOP_STRINGS"});
  rows.Integer("max-completion-prompts", "1024", "Most prompts in a request.",
               {.range = {1, 1e6}, .environment = "VLLM_MAX_COMPLETION_PROMPTS"});
  rows.Integer("max-n-sequences", "16384", "Largest \"n\" of a request.",
               {.range = {1, 1e6}, .environment = "VLLM_MAX_N_SEQUENCES"});
  rows.Integer("max-num-bad-words", "128", "Most bad words of a request.",
               {.range = {0, 1e6}, .environment = "VLLM_MAX_NUM_BAD_WORDS"});
}

void AddLogRows(std::vector<Option>& table) {
  Rows rows(table, "Log", kServe);
  rows.Choice("log-level", "info",
              "trace|debug|info|warning|error|critical|verbose|notset|internal_error",
              "Least severe level that is logged.",
              {.commands = kAllCommands, .environment = "VLLM_LOGGING_LEVEL"});
  rows.Choice(
      "log-format", "text", "text|json",
      "Form of the log: lines of text, or one JSON object a line with ts, level, source and "
      "message; lines of requests have request_id, status, seconds, tokens and more.");
  rows.Choice("uvicorn-log-level", "info", "trace|debug|info|warning|error|critical",
              "Level of the access log: warning and above turn it off.");
  rows.Flag("disable-uvicorn-access-log", "Do not log HTTP requests.");
  rows.Text("disable-access-log-for-endpoints", "",
            "Comma-separated paths that the access log leaves out: /health,/metrics.");
  rows.Flag("enable-log-requests", "Log every request with its parameters.");
  rows.Flag("enable-log-outputs", "With --enable-log-requests: log the answers as well.");
  rows.Integer("max-log-len", "", "Most characters of a prompt or answer in the log.",
               {.commands = kServe | kRunBatch, .range = {0, 1e9}});
  rows.Flag("aggregate-engine-logging",
            "Log statistics of all engines of --data-parallel-size in one line.");
  rows.Flag("disable-log-stats", "Do not log statistics periodically.",
            {.commands = kEngineArguments});
  rows.Number("log-stats-interval", "10", "Seconds between two lines of statistics; 0: none.",
              {.range = {0, 86400},
               .environment = "VLLM_LOG_STATS_INTERVAL",
               .trtllm = "--metrics_log_interval"});
  rows.Text(
      "otlp-traces-endpoint", "",
      "Address of an OpenTelemetry collector (http://HOST:4318) that a span of each request is "
      "sent to, by OTLP over HTTP; docs/production.md.",
      {.commands = kServe | kRunBatch});
  rows.Text(
      "config", "",
      "YAML file of options: its keys are option names with dashes or underscores, and model.",
      {.commands = kAllCommands, .trtllm = "--extra_llm_api_options", .value = ValueKind::kFile});
  rows.Flag("fail-on-environ-validation",
            "Refuse to start with an unknown VLLM_ variable; otherwise it is logged.",
            {.commands = kServe | kRunBatch});
}

void AddTrtllmRows(std::vector<Option>& table) {
  Rows rows(table, "trtllm-serve", kServe);
  rows.Flag("enable-iter-perf-stats", "Let GET /metrics report every step, as trtllm-serve does.",
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
